"""The sweep of the op: small numbers and far too large ones, odd widths."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from turbodflash_kernels.cases import Values, normal
from turbodflash_kernels.device import Device


@dataclass(frozen=True)
class Case:
    """spread: standard deviation of the numbers. sliced: they are columns of a wider array."""

    rows: int
    width: int
    cap: float = 30.0
    spread: float = 20.0
    sliced: bool = False
    lossy_weights: bool = False

    def __str__(self) -> str:
        spread = f"{self.spread:g}within{self.cap:g}"
        return f"{self.rows}x{self.width}-{spread}{'-sliced' * self.sliced}"

    def inputs(self, rows: int) -> Values:
        return {"x": normal(rows, self.width, 1) * np.float32(self.spread)}

    def bind(self, device: Device) -> Callable[[Values], Values]:
        softcap = device.bind("softcap", cap=self.cap)

        def run(values: Values) -> Values:
            x = device.upload(values["x"])
            if self.sliced:
                x = device.upload(np.hstack([np.full_like(values["x"], np.nan), values["x"]]))
                x = x[:, self.width :]
            return {"y": device.read(softcap(x))}

        return run


CASES = [
    *(Case(rows, 4099) for rows in (1, 2, 3, 17)),
    *(Case(3, width, sliced=True) for width in (1, 15, 16, 33, 64)),
    *(Case(2, 300, cap, spread) for cap in (1.0, 50.0) for spread in (1e-3, 1.0, 1e4)),
]

AHEAD = [Case(16, 262_144)]
"""What is compiled for cards that are not there: the vocabulary of Gemma 4."""
