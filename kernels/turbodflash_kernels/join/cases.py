"""The sweep of the op: one part to four, with and without norms, odd widths."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from turbodflash_kernels.cases import Values, normal
from turbodflash_kernels.device import Device
from turbodflash_kernels.op import RmsNorm


@dataclass(frozen=True)
class Case:
    """parts: width of each part, and whether it is normed.

    sliced: the parts are columns of one wider array.
    """

    rows: int
    parts: tuple[tuple[int, bool], ...]
    sliced: bool = False
    lossy_weights: bool = False

    def __str__(self) -> str:
        parts = "+".join(f"{width}{'n' * normed}" for width, normed in self.parts)
        return f"{self.rows}x{parts}{'-sliced' * self.sliced}"

    def inputs(self, rows: int) -> Values:
        return {
            f"part{index}": normal(rows, width, index)
            for index, (width, _) in enumerate(self.parts)
        }

    def bind(self, device: Device) -> Callable[[Values], Values]:
        weights = [1 + normal(1, width, 9)[0] / np.float32(4) for width, _ in self.parts]
        join = device.bind(
            "join",
            norms=tuple(
                RmsNorm(device.upload(weight), 1e-5) if normed else None
                for weight, (_, normed) in zip(weights, self.parts, strict=True)
            ),
        )

        def run(values: Values) -> Values:
            parts = [device.upload(value) for value in values.values()]
            if self.sliced:
                wide = device.upload(np.concatenate(list(values.values()), axis=1))
                ends = np.cumsum([width for width, _ in self.parts]).tolist()
                parts = [wide[:, a:b] for a, b in zip([0, *ends], ends, strict=False)]
            return {"x": device.read(join(*parts))}

        return run


CASES = [
    *(Case(rows, ((576, True), (576, True))) for rows in (1, 2, 3, 17, 40)),
    *(Case(3, ((width, True), (width, False))) for width in (1, 15, 16, 33, 64)),
    *(Case(5, ((96, False), (96, False), (96, False)), sliced) for sliced in (False, True)),
    Case(17, ((60, True), (17, False), (128, True), (3, True)), sliced=True),
    Case(1, ((48, True),)),
]

AHEAD = [Case(16, ((5120, normed), (5120, normed))) for normed in (True, False)]
