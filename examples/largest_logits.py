"""Time how the largest logits of a model are found, against making all of them first.

    python examples/largest_logits.py MODEL

Rows are what leaves the last layer after the words of a short text; both ways take turns, and what
they find must be the same to the bit. Matters where a head has codes of 8 bits, on a CPU.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turbodflash_engine import LoadOptions
from turbodflash_engine.loading import load
from turbodflash_kernels.device import Device
from turbodflash_kernels.op import RmsNorm
from turbodflash_kernels.top_logits.composed import compose

TEXT = "A village lies where two rivers meet. Its people mend nets, bake bread and " * 4
TURNS = 40


def main(path: Path) -> None:
    loaded = load(LoadOptions(model=path, context=512), None)
    model, device = loaded.model, loaded.device
    tokens = loaded.tokenizer.encode(TEXT, add_special=True, parse_special=False)
    left = model(tokens, taps=(model.shared.layers,)).taps[0]
    hidden = device.read(left).copy()
    assert model.shared.norm is not None
    weight, eps = model.shared.norm
    head: dict[str, Any] = {
        "weight": model.shared.head.on(device),
        "prologue": RmsNorm(device.upload(weight), eps),
        "softcap": 0.0,
        "width": model.vocabulary,
    }
    print("rows  largest  of all, ms  found, ms  times")
    for rows in (1, 2, 4, 8):
        for count in (1, 40):
            all_of_them, few = compared(device, hidden, rows, head | {"count": count})
            ratio = median(a / b for a, b in zip(all_of_them, few, strict=True))
            times = (1e3 * median(all_of_them), 1e3 * median(few), ratio)
            print(
                f"{rows:4} {count:8} {times[0]:11.2f} {times[1]:10.2f} {times[2]:6.2f}", flush=True
            )


def compared(
    device: Device, hidden: NDArray[np.float32], rows: int, head: dict[str, Any]
) -> tuple[list[float], list[float]]:
    """Seconds of both ways, turn by turn."""
    x = device.upload(hidden[:rows])
    of_all, found = compose(device, **head), device.bind("top_logits", **head)
    steps = [device.capture(partial(way, x), rows=rows) for way in (of_all, found)]
    seconds: tuple[list[float], list[float]] = ([], [])
    for turn in range(TURNS):
        first = turn * 7 % (len(hidden) - rows)
        device.write(x, hidden[first : first + rows])
        best = [timed(device, step, spent) for step, spent in zip(steps, seconds, strict=True)]
        assert best[0] == best[1], "not the same logits"
    return seconds


def timed(device: Device, step: Callable[[], Any], spent: list[float]) -> list[bytes]:
    start = time.perf_counter()
    best = device.read_all(step())
    spent.append(time.perf_counter() - start)
    return [array.tobytes() for array in best]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
