"""The sweep of the op. Rows of a block depend on each other: a row of a case is a whole block."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turbodflash_kernels.cases import Values, normal
from turbodflash_kernels.device import Device
from turbodflash_kernels.op import Array


@dataclass(frozen=True)
class Case:
    """rows: how many blocks; block: rows that the op is called with.

    sliced: the dynamic taps are the second half of the columns of a wider array.
    """

    rows: int
    block: int
    taps: int
    width: int
    group: int
    residual: bool = False
    sliced: bool = False
    lossy_weights: bool = False

    def __str__(self) -> str:
        extras = "-residual" * self.residual + "-sliced" * self.sliced
        return f"{self.block}x{self.width}-{self.taps}taps-by{self.group}{extras}"

    def inputs(self, rows: int) -> Values:
        dynamic = self.taps * self.width // self.group
        values = {
            "x": normal(rows, self.block * self.width, 1),
            "dynamic": normal(rows, self.block * dynamic, 2),
        }
        if self.residual:
            values["residual"] = normal(rows, self.block * self.width, 3)
        return values

    def bind(self, device: Device) -> Callable[[Values], Values]:
        base = device.upload(normal(self.taps, self.width, 4))
        tap_conv = device.bind("tap_conv", base=base, group=self.group)

        def one(values: Values) -> NDArray[np.float32]:
            uploaded = {name: self._uploaded(device, name, v) for name, v in values.items()}
            return device.read(tap_conv(**uploaded)).reshape(-1)

        def run(values: Values) -> Values:
            blocks = range(len(values["x"]))
            return {
                "y": np.stack([one({name: v[i] for name, v in values.items()}) for i in blocks])
            }

        return run

    def _uploaded(self, device: Device, name: str, row: NDArray[np.float32]) -> Array:
        value = row.reshape(self.block, -1)
        if not (self.sliced and name == "dynamic"):
            return device.upload(value)
        width = value.shape[1]
        return device.upload(np.concatenate([np.full_like(value, 1e9), value], axis=1))[:, width:]


CASES = [
    *(Case(2, block, 4, 64, 16) for block in (1, 2, 3, 4, 5, 16, 17)),
    *(Case(2, 8, taps, 96, 32, residual=True) for taps in (1, 2, 3, 7)),
    *(Case(2, 5, 3, 120, group) for group in (1, 4, 5, 24, 60, 120)),
    *(Case(2, 8, 4, 576, group, residual=True, sliced=True) for group in (16, 64, 576)),
]

AHEAD = [Case(1, 16, 4, 5120, group, residual=True) for group in (64, 5120)]
