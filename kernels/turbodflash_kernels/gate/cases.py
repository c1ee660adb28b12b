"""The sweep of the op: each activation, a gate a number and a gate a row, odd widths."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from turbodflash_kernels.cases import Values, normal
from turbodflash_kernels.device import Device
from turbodflash_kernels.op import Activation


@dataclass(frozen=True)
class Case:
    """gates: of a row. sliced: the inputs are columns of one wider array."""

    rows: int
    width: int
    activation: Activation
    gates: int = 0
    residual: bool = False
    sliced: bool = False
    lossy_weights: bool = False

    def __str__(self) -> str:
        extras = ["one" * (self.gates == 1), "residual" * self.residual, "sliced" * self.sliced]
        return "-".join([f"{self.rows}x{self.width}", self.activation, *filter(None, extras)])

    def inputs(self, rows: int) -> Values:
        values = {
            "gate": 3 * normal(rows, self.gates or self.width, 1),
            "x": normal(rows, self.width, 2),
        }
        if self.residual:
            values["residual"] = normal(rows, self.width, 3)
        return values

    def bind(self, device: Device) -> Callable[[Values], Values]:
        gate = device.bind("gate", activation=self.activation)

        def run(values: Values) -> Values:
            parts = [device.upload(value) for value in values.values()]
            if self.sliced:
                wide = device.upload(np.concatenate(list(values.values()), axis=1))
                ends = np.cumsum([value.shape[1] for value in values.values()]).tolist()
                parts = [wide[:, a:b] for a, b in zip([0, *ends], ends, strict=False)]
            return {"y": device.read(gate(*parts))}

        return run


ACTIVATIONS: tuple[Activation, ...] = ("sigmoid", "silu", "gelu")

CASES = [
    *(Case(rows, 192, "sigmoid") for rows in (1, 2, 3, 17, 40)),
    *(Case(3, width, activation) for activation in ACTIVATIONS for width in (1, 15, 16, 33, 64)),
    *(Case(rows, 96, "sigmoid", gates=1, residual=True) for rows in (1, 5, 17)),
    *(Case(3, 65, activation, residual=True, sliced=True) for activation in ACTIVATIONS),
    Case(5, 33, "sigmoid", gates=1, residual=True, sliced=True),
]

AHEAD = [
    Case(16, 6144, "sigmoid", sliced=True),
    Case(16, 2048, "sigmoid", gates=1, residual=True),
    Case(16, 256, "gelu"),
]
"""What is compiled for cards that are not there: shapes of Qwen3.6 and Gemma 4."""
