"""The sweep of the op: one part to four, with and without norms, in groups, odd widths."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from turbodflash_kernels.cases import Values, normal
from turbodflash_kernels.device import Device
from turbodflash_kernels.op import RmsNorm


@dataclass(frozen=True)
class Case:
    """normed: of each part, whether it is.

    sliced: the parts are columns of one wider array.
    """

    rows: int
    width: int
    normed: tuple[bool, ...]
    scale: float = 1.0
    groups: int = 1
    sliced: bool = False
    lossy_weights: bool = False

    def __str__(self) -> str:
        parts = "+".join("norm" if normed else "part" for normed in self.normed)
        extras = [f"by{self.scale}" * (self.scale != 1), f"in{self.groups}" * (self.groups > 1)]
        return "-".join(
            [f"{self.rows}x{self.width}", parts, *filter(None, extras), "sliced" * self.sliced]
        )

    def inputs(self, rows: int) -> Values:
        return {f"part{i}": normal(rows, self.width, i) for i in range(len(self.normed))}

    def bind(self, device: Device) -> Callable[[Values], Values]:
        weights = [
            1 + normal(1, self.width // self.groups, 9 + i)[0] / np.float32(4)
            for i in range(len(self.normed))
        ]
        add = device.bind(
            "add",
            norms=tuple(
                RmsNorm(device.upload(weight), 1e-5) if normed else None
                for weight, normed in zip(weights, self.normed, strict=True)
            ),
            scale=self.scale,
            groups=self.groups,
        )

        def run(values: Values) -> Values:
            parts = [device.upload(value) for value in values.values()]
            if self.sliced:
                wide = device.upload(np.concatenate(list(values.values()), axis=1))
                starts = range(0, wide.shape[1], self.width)
                parts = [wide[:, start : start + self.width] for start in starts]
            return {"y": device.read(add(*parts))}

        return run


CASES = [
    *(Case(rows, 640, (False, True)) for rows in (1, 2, 3, 17, 40)),
    *(Case(3, width, (True, False), 0.5) for width in (1, 15, 16, 33, 64)),
    Case(5, 576, (True,)),
    Case(5, 576, (True, True), sliced=True),
    Case(3, 96, (False, True, True, False), -1.25, sliced=True),
    *(Case(rows, 7 * 24, (True, False), 0.7071, groups=7) for rows in (1, 5)),
    Case(2, 3 * 64, (False, True), groups=3, sliced=True),
]

AHEAD = [
    Case(16, 5376, (False, True)),
    Case(16, 2816, (True, True)),
    Case(16, 35 * 256, (True, False), 0.7071, groups=35),
]
"""What is compiled for cards that are not there: shapes of Gemma 4."""
