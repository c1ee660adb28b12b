"""Whether the memory plan tells the truth: what a process then takes, beside what was planned.

    python examples/check_plan.py model.gguf [-md draft.gguf] [-c 2048] [--cache-type f16]

The whole context is filled. The process itself (the interpreter and its libraries, before a file
is opened) is measured apart, and is not part of the plan.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from turbodflash_engine import (
    LoadOptions,
    SampleOptions,
    SayOptions,
    SpecOptions,
    open_session,
    plan_files,
)
from turbodflash_kernels.device import open_device

ANSWER = 48  # tokens of the context, at least, that the prompt leaves to the answer
STATUS = Path("/proc/self/status")


def memory(field: str) -> int:
    """Bytes: "VmRSS" now, "VmHWM" at the most."""
    lines = [line.split() for line in STATUS.read_text().splitlines()]
    return next(1024 * int(line[1]) for line in lines if line[0] == f"{field}:")


def fill(options: LoadOptions) -> int:
    """Load, read a prompt, and answer until the context is full; the tokens that were used."""
    session = open_session(options)
    pattern = " one two three four five six seven eight nine ten"
    times = (session.info.context - ANSWER) // session.count(pattern)
    say = SayOptions(sample=SampleOptions(temp=0.0, ignore_eos=True))
    for _ in session.complete(pattern * times, say):
        pass
    return session.used


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("-md", dest="draft", type=Path)
    parser.add_argument("-c", dest="context", type=int, default=2048)
    parser.add_argument("--cache-type", default="f16")
    asked = parser.parse_args()
    options = LoadOptions(
        asked.model,
        context=asked.context,
        cache_type_k=asked.cache_type,
        cache_type_v=asked.cache_type,
        device="cpu",
        spec=SpecOptions(model=asked.draft) if asked.draft else None,
    )
    open_device("cpu")
    process = memory("VmRSS")
    planned = sum(share.nbytes for share in plan_files(options).shares)
    used = fill(options)
    taken = memory("VmHWM") - process
    figures = {
        "tokens": used,
        "process": process,
        "planned": planned,
        "taken": taken,
        "planned_over_taken_percent": round(100 * (planned / taken - 1), 1),
    }
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
