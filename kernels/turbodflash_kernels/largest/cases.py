"""The sweep of the op: rows shorter and longer than a block, ties, NaN."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from turbodflash_kernels.cases import Values, normal
from turbodflash_kernels.device import Device


@dataclass(frozen=True)
class Case:
    """coarse: numbers are rounded to whole ones, so that most are equal to others.

    holes: every third number is NaN.
    """

    rows: int
    width: int
    count: int
    coarse: bool = False
    holes: bool = False
    lossy_weights: bool = False

    def __str__(self) -> str:
        extras = "-coarse" * self.coarse + "-holes" * self.holes
        return f"{self.count}-of-{self.rows}x{self.width}{extras}"

    def inputs(self, rows: int) -> Values:
        x = normal(rows, self.width, 3)
        if self.coarse:
            x = np.rint(x)
        if self.holes:
            x[:, ::3] = np.nan
        return {"x": x}

    def bind(self, device: Device) -> Callable[[Values], Values]:
        largest = device.bind("largest", count=self.count)

        def run(values: Values) -> Values:
            best, ids = largest(device.upload(values["x"]))
            return {"values": device.read(best), "ids": device.read(ids)}

        return run


CASES = [
    *(Case(3, width, 1) for width in (1, 15, 16, 17, 255, 256, 257, 5000)),
    *(Case(rows, 4099, count) for rows in (1, 2, 17) for count in (1, 6, 10)),
    *(Case(5, width, 10, coarse=True) for width in (10, 33, 512, 4097)),
    *(Case(5, width, 8, holes=True) for width in (16, 300, 4096)),
    Case(2, 33, 33),
    Case(2, 9000, 200),
    Case(1, 49_152, 6),
]

AHEAD = [Case(16, 151_936, count) for count in (1, 64)]
