"""The sweep of the op: positions within a ring and far beyond it, odd widths."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from turbodflash_kernels.cases import Values, normal
from turbodflash_kernels.device import Device


@dataclass(frozen=True)
class Case:
    """start: the position of the first row. sliced: rows are columns of a wider array."""

    rows: int
    width: int
    start: int = 0
    slots: int = 128
    sliced: bool = False
    lossy_weights: bool = False

    def __str__(self) -> str:
        return f"{self.rows}x{self.width}-at{self.start}of{self.slots}{'-sliced' * self.sliced}"

    def inputs(self, rows: int) -> Values:
        positions = np.arange(self.start, self.start + rows, dtype=np.int32)
        return {"x": normal(rows, self.width, 1), "positions": positions}

    def bind(self, device: Device) -> Callable[[Values], Values]:
        ring = device.upload(np.full((self.slots, self.width), np.nan, np.float32))
        tap = device.bind("tap", ring=ring)

        def run(values: Values) -> Values:
            x = device.upload(values["x"])
            if self.sliced:
                x = device.upload(np.hstack([np.full_like(values["x"], np.nan), values["x"]]))
                x = x[:, self.width :]
            tap(x, device.upload(values["positions"]))
            return {"x": device.read(ring)[values["positions"] % self.slots]}

        return run


CASES = [
    *(Case(rows, 576) for rows in (1, 2, 3, 17)),
    *(Case(3, width, sliced=True) for width in (1, 15, 16, 33, 64)),
    *(Case(2, 100, start) for start in (126, 127, 128, 1_000_000)),
]

AHEAD = [Case(1, 5120)]
