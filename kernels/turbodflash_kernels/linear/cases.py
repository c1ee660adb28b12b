"""The sweep of the op: odd sizes, every format, every prologue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from turbodflash_kernels.cases import FORMATS, Values, normal, random_part
from turbodflash_kernels.device import Device
from turbodflash_kernels.op import Array, Gated, Part, Prologue, RmsNorm


@dataclass(frozen=True)
class Case:
    """parts: (format, rows of weight) of each part of the matrix."""

    rows: int
    cols: int
    parts: tuple[tuple[str, int], ...]
    prologue: str = ""
    bias: bool = False
    residual: bool = False
    factors: tuple[float, ...] = ()

    def __str__(self) -> str:
        parts = "+".join(f"{rows}x{format}" for format, rows in self.parts)
        extras = [self.prologue, "bias" * self.bias, "residual" * self.residual]
        extras += [f"times{factor:g}" for factor in self.factors]
        return "-".join([f"{self.rows}x{self.cols}", parts, *filter(None, extras)])

    @property
    def lossy_weights(self) -> bool:
        return any(not FORMATS[format].dense for format, _ in self.parts)

    @property
    def width(self) -> int:
        return sum(rows for _, rows in self.parts)

    def inputs(self, rows: int) -> Values:
        gated = self.prologue in ("silu", "gelu")
        values: Values = {"x": normal(rows, self.cols * (2 if gated else 1), 2)}
        if self.residual:
            values["residual"] = normal(rows, self.width, 3)
        return values

    def bind(self, device: Device) -> Callable[[Values], Values]:
        linear = device.bind(
            "linear",
            weight=device.pack(
                [self._part(index) for index in range(len(self.parts))],
                self.cols,
            ),
            prologue=self._prologue(device),
            bias=self._vector(device, self.width, 4) if self.bias else None,
        )

        def run(values: Values) -> Values:
            uploaded = {name: device.upload(value) for name, value in values.items()}
            return {"y": device.read(linear(**uploaded))}

        return run

    def _part(self, index: int) -> Part:
        format, rows = self.parts[index]
        factor = self.factors[index] if self.factors else 1.0
        return replace(random_part(format, rows, self.cols, index), factor=factor)

    def _prologue(self, device: Device) -> Prologue:
        if self.prologue == "norm":
            return RmsNorm(self._vector(device, self.cols, 5), 1e-5)
        if self.prologue == "silu":
            return Gated("silu")
        return Gated("gelu") if self.prologue else None

    @staticmethod
    def _vector(device: Device, size: int, seed: int) -> Array:
        return device.upload(1 + normal(1, size, seed)[0] / np.float32(4))


def one(rows: int, cols: int, format: str, width: int, prologue: str = "") -> Case:
    return Case(rows, cols, ((format, width),), prologue)


QUANTISED = [name for name, format in FORMATS.items() if not format.dense]
ONE_LEVEL = [name for name in QUANTISED if not FORMATS[name].two_level]
TWO_LEVEL = [name for name in QUANTISED if FORMATS[name].two_level]
DENSE = [name for name, format in FORMATS.items() if format.dense]

TIMES = (0.75, 3.0, 0.5)

CASES = [
    *(one(3, cols, name, 33) for name in ONE_LEVEL for cols in (32, 64, 96, 576)),
    *(one(3, cols, name, 33) for name in TWO_LEVEL for cols in (256, 768)),
    *(one(3, cols, name, 33) for name in DENSE for cols in (48, 60, 576)),
    *(one(rows, 96, "4-affine", 17) for rows in (1, 2, 3, 5, 8, 9, 16, 17, 40)),
    *(one(rows, 256, "6-two-level-zero32", 17) for rows in (1, 2, 8, 17, 40)),
    *(one(rows, 60, "f32", 17) for rows in (1, 2, 5, 8, 17, 40)),
    *(one(2, 64, name, width) for name in ("8-zero128", "f16") for width in (1, 15, 16, 17, 576)),
    *(
        one(rows, cols, name, 48, prologue)
        for prologue in ("norm", "silu", "gelu")
        for rows in (1, 5, 17)
        for name, cols in (("4-affine", 576), ("5-two-level-affine", 768), ("bf16", 60))
    ),
    Case(5, 256, (("4-two-level-affine", 40), ("6-two-level-zero32", 24)), "norm", bias=True),
    Case(8, 64, (("5-affine", 17), ("4-zero8", 5), ("8-zero128", 3)), "norm", bias=True),
    Case(1, 64, (("f32", 17), ("f16", 5), ("bf16", 3)), "norm", bias=True),
    Case(3, 96, (("4-zero8", 15), ("f16", 17)), residual=True),
    Case(17, 96, (("4-affine", 33),), "silu", residual=True),
    Case(1, 576, (("8-zero128", 576),), bias=True, residual=True),
    *(
        Case(rows, 64, (("4-table", 32), ("4-table", 16), ("f32", 17)), "norm", True, True, TIMES)
        for rows in (1, 2, 7, 20)
    ),
]

K4, K5, K6 = "4-two-level-affine", "5-two-level-affine", "6-two-level-zero32"

AHEAD = [  # matrices of Qwen3-8B and 32B, for what is compiled ahead of time
    one(1, 5120, K4, 51200, "norm"),
    one(8, 4096, K6, 1024, "norm"),
    one(1, 4096, K6, 151_936, "norm"),
    Case(24, 25600, ((K5, 5120),), "silu", residual=True),
    Case(5, 4096, (("8-zero128", 4096),), residual=True),
    *(one(16, 4096, format, 24576, "norm") for format in (K5, "8-zero128", "4-zero8", "f16")),
    *(one(2, 4096, format, 24576) for format in ("2-two-level-nibbles", "3-two-level-zero4")),
    one(4, 4096, "4-two-level-table", 24576, "norm"),
    *(one(rows, 4096, "f32", 1024) for rows in (1, 512)),
    *(one(512, 5120, format, 51200, "norm") for format in (K4, "f16")),
    Case(512, 25600, ((K6, 5120),), "silu", residual=True),
    one(512, 4096, "8-zero128", 4096),
]
