"""The sweep of the op: every kind of format between the products, few rows and prompts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from turbodflash_kernels.cases import FORMATS, Values, normal, random_part
from turbodflash_kernels.device import Device
from turbodflash_kernels.op import Array, RmsNorm


@dataclass(frozen=True)
class Case:
    """formats: of gate, up and down."""

    rows: int
    cols: int
    hidden: int
    formats: tuple[str, str, str]
    width: int = 33
    activation: Literal["silu", "gelu"] = "silu"
    norm: bool = True
    biases: tuple[bool, bool] = (False, False)
    residual: bool = True

    def __str__(self) -> str:
        extras = [self.activation, "raw" * (not self.norm), "residual" * self.residual]
        extras += ["biased" * self.biases[0], "bias" * self.biases[1]]
        sizes = f"{self.rows}x{self.cols}x{self.hidden}x{self.width}"
        return "-".join([sizes, "+".join(self.formats), *filter(None, extras)])

    @property
    def lossy_weights(self) -> bool:
        return any(not FORMATS[format].dense for format in self.formats)

    def inputs(self, rows: int) -> Values:
        values: Values = {"x": normal(rows, self.cols, 2)}
        if self.residual:
            values["residual"] = normal(rows, self.width, 3)
        return values

    def bind(self, device: Device) -> Callable[[Values], Values]:
        gate, up, down = self.formats
        wide = [random_part(gate, self.hidden, self.cols, 0)]
        wide.append(random_part(up, self.hidden, self.cols, 1))
        feed_forward = device.bind(
            "feed_forward",
            gate_up=device.pack(wide, self.cols),
            down=device.pack([random_part(down, self.width, self.hidden, 2)], self.hidden),
            prologue=RmsNorm(_vector(device, self.cols, 5), 1e-5) if self.norm else None,
            activation=self.activation,
            gate_up_bias=_vector(device, 2 * self.hidden, 6) if self.biases[0] else None,
            down_bias=_vector(device, self.width, 7) if self.biases[1] else None,
        )

        def run(values: Values) -> Values:
            uploaded = {name: device.upload(value) for name, value in values.items()}
            return {"y": device.read(feed_forward(**uploaded))}

        return run


def _vector(device: Device, size: int, seed: int) -> Array:
    return device.upload(1 + normal(1, size, seed)[0] / np.float32(4))


def alike(rows: int, format: str, hidden: int = 96, cols: int = 64) -> Case:
    return Case(rows, cols, hidden, (format, format, format))


ONE_LEVEL = [name for name, format in FORMATS.items() if not (format.dense or format.two_level)]
TWO_LEVEL = [name for name, format in FORMATS.items() if format.two_level]

CASES = [
    *(alike(rows, name) for name in ONE_LEVEL for rows in (1, 5)),
    *(alike(rows, name, 256, 256) for name in TWO_LEVEL for rows in (2, 7)),
    *(alike(rows, "4-affine", 576) for rows in (1, 2, 3, 4, 6, 8, 11, 16, 17, 40, 70)),
    *(alike(rows, "8-zero128", 32) for rows in (1, 2, 9)),
    *(Case(n, 64, 160, ("5-zero16", "5-zero16", "f16"), activation="gelu") for n in (1, 6)),
    Case(3, 64, 64, ("4-zero8", "4-zero8", "8-zero128"), biases=(True, True)),
    Case(5, 64, 96, ("4-affine", "8-zero128", "4-affine"), norm=False, biases=(False, True)),
    Case(5, 64, 96, ("4-affine", "4-affine", "4-table"), biases=(False, True), residual=False),
    Case(3, 64, 80, ("4-affine", "4-affine", "bf16")),
    Case(2, 60, 64, ("f32", "f32", "f16"), activation="gelu"),
]

AHEAD = [Case(8, 4096, 12288, ("4-two-level-affine",) * 2 + ("6-two-level-zero32",), 4096)]
