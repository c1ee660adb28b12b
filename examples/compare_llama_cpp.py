"""The same file and threads through turbodflash and llama.cpp, in turns, with the ratios.

python examples/compare_llama_cpp.py [-m MODEL.gguf] [-t THREADS] [--rounds 5] [--depth TOKENS]
                                     [--cache-type f16|q8_0|q4_0]

Each turn is a process of its own that loads, warms up, reads a prompt of about 512 tokens and, from
a prompt of one word, decodes 128 tokens greedily: no engine waits in memory while the other runs.
With --depth the prompt stands behind so many tokens that were read before, and what is decoded
behind all of them. llama.cpp attends the fast way (`-fa on`), with the same types of the cache; it
comes through llama-cpp-python (`pip install llama-cpp-python`), from this Python or from the one
named by --llama-python.
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
from typing import NamedTuple

PROMPT_TOKENS, DECODE_TOKENS, ROOM = 512, 128, 1024
CACHE_TYPES = {"f16": 1, "q4_0": 2, "q8_0": 8}  # and the numbers that ggml has for them
SENTENCE = "Number %d: the quick brown fox jumps over the lazy dog while it reads a long book. "
WARM_UP = "Something else first. " + SENTENCE % 0
Speeds = dict[str, float]


class Setting(NamedTuple):
    """What both engines are given. depth: tokens that stand before those that are timed."""

    model: Path
    threads: int
    depth: int
    cache_type: str

    @property
    def context(self) -> int:
        return self.depth + ROOM


def text_of(tokens: int, count: Callable[[str], int]) -> str:
    """Plain English of nearly so many tokens, as `count` counts them; a longer one begins alike."""
    words = "".join(SENTENCE % n for n in range(1, tokens // 8)).split(" ")
    kept = min(int(len(words) * tokens / count(" ".join(words))) + 20, len(words))
    while count(" ".join(words[:kept])) >= tokens:
        kept -= 1
    return " ".join(words[:kept])


def turbodflash(setting: Setting) -> Speeds:
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

    session = open_session(
        LoadOptions(
            model=setting.model,
            context=setting.context,
            threads=setting.threads,
            cache_type_k=setting.cache_type,
            cache_type_v=setting.cache_type,
        )
    )
    run(session, WARM_UP, 16)
    if setting.depth:
        run(session, text_of(setting.depth, session.count), 0)
    text = text_of(setting.depth + PROMPT_TOKENS, session.count)
    prompt = run(session, text, 0)
    decoded = run(session, text if setting.depth else "Once", DECODE_TOKENS + 1)
    return {
        "prompt_tokens": prompt.prompt_tokens - prompt.cached_tokens,
        "prompt": prompt.prompt_tokens_per_second,
        "decode": decoded.tokens_per_second,
    }


def llama_cpp(setting: Setting) -> Speeds:
    import numpy as np
    from llama_cpp import Llama, llama_get_logits

    llama = Llama(
        model_path=str(setting.model),
        n_ctx=setting.context,
        n_batch=PROMPT_TOKENS,
        n_ubatch=PROMPT_TOKENS,
        n_threads=setting.threads,
        n_threads_batch=setting.threads,
        flash_attn=True,
        type_k=CACHE_TYPES[setting.cache_type],
        type_v=CACHE_TYPES[setting.cache_type],
        verbose=False,
    )

    def count(text: str) -> int:
        return len(llama.tokenize(text.encode()))

    def read(tokens: list[int]) -> float:
        started = time.perf_counter()
        llama.eval(tokens)
        best()
        return time.perf_counter() - started

    def best() -> int:
        logits = np.ctypeslib.as_array(llama_get_logits(llama.ctx), shape=(llama.n_vocab(),))
        return int(logits.argmax())

    def write(tokens: int) -> float:
        started = time.perf_counter()
        for _ in range(tokens):
            llama.eval([best()])
        return time.perf_counter() - started

    read(llama.tokenize(WARM_UP.encode()))
    write(16)
    llama.reset()
    tokens = llama.tokenize(text_of(setting.depth + PROMPT_TOKENS, count).encode())
    if setting.depth:
        read(tokens[: setting.depth])
    timed = tokens[setting.depth :]
    seconds = read(timed)
    if not setting.depth:
        llama.reset()
        read(llama.tokenize(b"Once"))
    return {
        "prompt_tokens": len(timed),
        "prompt": len(timed) / seconds,
        "decode": DECODE_TOKENS / write(DECODE_TOKENS),
    }


ENGINES = {"turbodflash": turbodflash, "llama.cpp": llama_cpp}


def turn(python: str, engine: str, setting: Setting) -> Speeds:
    """Runs one engine in a process of its own."""
    model, *numbers = map(str, setting)
    options = ("-t", "--depth", "--cache-type")
    command = [python, __file__, "-m", model, "--engine", engine]
    command += (word for pair in zip(options, numbers, strict=True) for word in pair)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{engine} failed:\n{done.stderr}")
    speeds: Speeds = json.loads(done.stdout.splitlines()[-1])
    return speeds


def compare(setting: Setting, rounds: int, llama_python: str) -> None:
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
            speeds = turn(python, engine, setting)
            results[engine].append(speeds)
            print(
                f"round {number}  {engine:11}  prompt of {speeds['prompt_tokens']:.0f}:"
                f" {speeds['prompt']:7.1f} t/s   decode: {speeds['decode']:6.1f} t/s",
                flush=True,
            )
    model, threads, depth, cache_type = setting
    print(
        f"\n{model.name}, {threads} threads, {cache_type} cache, depth {depth}, of {rounds} rounds"
    )
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
    parser.add_argument("--depth", type=int, default=0, help="tokens before those that are timed")
    parser.add_argument("--cache-type", choices=CACHE_TYPES, default="f16")
    parser.add_argument("--llama-python", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--engine", choices=ENGINES, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.model is None:
        from turbodflash_cli.fetch import resolve

        given.model = resolve(None, None, None, offline=False)
    setting = Setting(given.model, given.threads, given.depth, given.cache_type)
    if given.engine:
        print(json.dumps(ENGINES[given.engine](setting)))
        return
    compare(setting, given.rounds, given.llama_python)


if __name__ == "__main__":
    main()
