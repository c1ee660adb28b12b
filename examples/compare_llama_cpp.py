"""The same file and threads through turbodflash and llama.cpp, in turns, with the ratios.

python examples/compare_llama_cpp.py [-m MODEL.gguf] [-t THREADS] [--rounds 5]

Each turn is a process of its own that loads, warms up, reads a prompt of about 512 tokens and, from
a prompt of one word, decodes 128 tokens greedily: no engine waits in memory while the other runs.
llama.cpp comes through llama-cpp-python (`pip install llama-cpp-python`), from this Python or from
the one named by --llama-python.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

PROMPT_TOKENS, DECODE_TOKENS, CONTEXT = 512, 128, 1024
SENTENCE = "Number %d: the quick brown fox jumps over the lazy dog while it reads a long book. "
WARM_UP = "Something else first. " + SENTENCE % 0
Speeds = dict[str, float]


def prompt_text(count: Callable[[str], int]) -> str:
    """Plain English of nearly PROMPT_TOKENS tokens, as `count` counts them."""
    words = "".join(SENTENCE % n for n in range(1, 60)).split(" ")
    while count(" ".join(words)) >= PROMPT_TOKENS:
        words.pop()
    return " ".join(words)


def turbodflash(model: Path, threads: int) -> Speeds:
    from turbodflash_engine import (
        Finished,
        LoadOptions,
        SampleOptions,
        SayOptions,
        Session,
        open_session,
    )

    def run(session: Session, prompt: str, tokens: int) -> Finished:
        greedy = SampleOptions(temp=0, ignore_eos=True)
        *_, last = session.complete(prompt, SayOptions(max_tokens=tokens, sample=greedy))
        assert isinstance(last, Finished)
        return last

    session = open_session(LoadOptions(model=model, context=CONTEXT, threads=threads))
    run(session, WARM_UP, 16)
    prompt = run(session, prompt_text(session.count), 0)
    decoded = run(session, "Once", DECODE_TOKENS + 1)
    return {
        "prompt_tokens": prompt.prompt_tokens - prompt.cached_tokens,
        "prompt": prompt.prompt_tokens_per_second,
        "decode": decoded.tokens_per_second,
    }


def llama_cpp(model: Path, threads: int) -> Speeds:
    import numpy as np
    from llama_cpp import Llama, llama_get_logits

    llama = Llama(
        model_path=str(model),
        n_ctx=CONTEXT,
        n_batch=PROMPT_TOKENS,
        n_ubatch=PROMPT_TOKENS,
        n_threads=threads,
        n_threads_batch=threads,
        verbose=False,
    )

    def read(prompt: str) -> tuple[int, float]:
        tokens = llama.tokenize(prompt.encode())
        llama.reset()
        started = time.perf_counter()
        llama.eval(tokens)
        best()
        return len(tokens), time.perf_counter() - started

    def best() -> int:
        logits = np.ctypeslib.as_array(llama_get_logits(llama.ctx), shape=(llama.n_vocab(),))
        return int(logits.argmax())

    def write(tokens: int) -> float:
        started = time.perf_counter()
        for _ in range(tokens):
            llama.eval([best()])
        return time.perf_counter() - started

    read(WARM_UP)
    write(16)
    count, seconds = read(prompt_text(lambda text: len(llama.tokenize(text.encode()))))
    read("Once")
    return {
        "prompt_tokens": count,
        "prompt": count / seconds,
        "decode": DECODE_TOKENS / write(DECODE_TOKENS),
    }


ENGINES = {"turbodflash": turbodflash, "llama.cpp": llama_cpp}


def turn(python: str, engine: str, model: Path, threads: int) -> Speeds:
    """Runs one engine in a process of its own."""
    command = [python, __file__, "-m", str(model), "-t", str(threads), "--engine", engine]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{engine} failed:\n{done.stderr}")
    speeds: Speeds = json.loads(done.stdout.splitlines()[-1])
    return speeds


def compare(model: Path, threads: int, rounds: int, llama_python: str) -> None:
    found = subprocess.run([llama_python, "-c", "import llama_cpp"], capture_output=True)
    if found.returncode:
        sys.exit(
            f"llama-cpp-python is not installed for {llama_python}.\n"
            "Install it (`pip install llama-cpp-python` builds llama.cpp, about ten minutes),\n"
            "or name a Python that has it with --llama-python."
        )
    pythons = {"turbodflash": sys.executable, "llama.cpp": llama_python}
    results: dict[str, list[Speeds]] = {engine: [] for engine in ENGINES}
    for number in range(1, rounds + 1):
        for engine, python in pythons.items():
            speeds = turn(python, engine, model, threads)
            results[engine].append(speeds)
            print(
                f"round {number}  {engine:11}  prompt of {speeds['prompt_tokens']:.0f}:"
                f" {speeds['prompt']:7.1f} t/s   decode: {speeds['decode']:6.1f} t/s",
                flush=True,
            )
    print(f"\n{model.name}, {threads} threads, medians of {rounds}")
    for what in ("prompt", "decode"):
        ours, theirs = (statistics.median(s[what] for s in results[name]) for name in ENGINES)
        print(f"{what}: {ours:.1f} against {theirs:.1f} t/s, {ours / theirs:.2f} times")


def usable_cores() -> int:
    """Cores that this process may run on, where the system says so."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("-m", "--model", type=Path, help="a GGUF file; default: the small model")
    parser.add_argument("-t", "--threads", type=int, default=usable_cores())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--llama-python", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--engine", choices=ENGINES, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.engine:
        print(json.dumps(ENGINES[given.engine](given.model, given.threads)))
        return
    if given.model is None:
        from turbodflash_cli.fetch import resolve

        given.model = resolve(None, None, None, offline=False)
    compare(given.model, given.threads, given.rounds, given.llama_python)


if __name__ == "__main__":
    main()
