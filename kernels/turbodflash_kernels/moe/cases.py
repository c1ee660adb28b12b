"""The sweep of the op: fused and apart, every format, odd sizes, experts that nobody chooses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from turbodflash_kernels.cases import FORMATS, Values, normal, random_part
from turbodflash_kernels.device import Device
from turbodflash_kernels.op import Experts, RmsNorm


@dataclass(frozen=True)
class Case:
    """gate_up, down: formats of weights; two of the former are gate and up apart.

    skew: added to the logits of the first experts, so that most rows choose them.
    """

    rows: int
    cols: int = 96
    hidden: int = 32
    width: int = 96
    experts: int = 8
    used: int = 2
    gate_up: tuple[str, ...] = ("4-affine",)
    down: str = "4-affine"
    activation: Literal["silu", "gelu"] = "silu"
    norm: bool = True
    scale: bool = False
    residual: bool = True
    skew: float = 0.0

    def __str__(self) -> str:
        sizes = f"{self.rows}x{self.cols}-{self.hidden}-{self.width}"
        extras = ("norm" * self.norm, "scale" * self.scale, "residual" * self.residual)
        words = (f"{self.used}of{self.experts}", *self.gate_up, self.down, self.activation, *extras)
        skew = f"skew{self.skew:g}" if self.skew else ""
        return "-".join(filter(None, (sizes, *words, skew)))

    @property
    def lossy_weights(self) -> bool:
        return any(not FORMATS[format].dense for format in (*self.gate_up, self.down))

    def inputs(self, rows: int) -> Values:
        router = 2 * normal(rows, self.experts, 3)
        router[:, : self.used] += np.float32(self.skew)
        values: Values = {"x": normal(rows, self.cols, 2), "router": router}
        if self.residual:
            values["residual"] = normal(rows, self.width, 4)
        return values

    def bind(self, device: Device) -> Callable[[Values], Values]:
        rows = 2 * self.hidden // len(self.gate_up)
        norm = RmsNorm(device.upload(1 + normal(1, self.cols, 5)[0] / np.float32(4)), 1e-5)
        moe = device.bind(
            "moe",
            gate_up=tuple(
                self._part(device, format, rows, self.cols, 10 + index)
                for index, format in enumerate(self.gate_up)
            ),
            down=self._part(device, self.down, self.width, self.hidden, 20),
            experts=self.experts,
            used=self.used,
            prologue=norm if self.norm else None,
            activation=self.activation,
        )

        def run(values: Values) -> Values:
            uploaded = {name: device.upload(value) for name, value in values.items()}
            return {"y": device.read(moe(**uploaded))}

        return run

    def _part(self, device: Device, format: str, rows: int, cols: int, seed: int) -> Experts:
        part = random_part(format, self.experts * rows, cols, seed)
        scale = 1 + normal(1, self.experts, 30 + seed)[0] / np.float32(4)
        weight = device.pack([part], cols)
        return Experts(weight, device.upload(scale) if self.scale else None)


QUANTISED = [name for name, format in FORMATS.items() if not format.dense]
ONE_LEVEL = [name for name in QUANTISED if not FORMATS[name].two_level]
TWO_LEVEL = [name for name in QUANTISED if FORMATS[name].two_level]
DENSE = [name for name, format in FORMATS.items() if format.dense]

QUICK = [
    Case(1),
    Case(3, gate_up=("4-zero8", "4-zero8"), down="8-zero128", activation="gelu", scale=True),
    Case(2, cols=256, gate_up=("4-two-level-affine",), down="f16", hidden=48, norm=False),
    Case(8, residual=False, skew=4.0),
    Case(40, gate_up=("f32", "8-zero128"), hidden=16, down="f32", experts=3, skew=6.0),
]
"""What a device sweeps that is interpreted."""

CASES = [
    *QUICK,
    *(Case(2, gate_up=(name, name), down=name) for name in ONE_LEVEL),
    *(
        Case(3, cols=256, hidden=256, experts=4, gate_up=(name,), down=name, scale=True)
        for name in TWO_LEVEL
    ),
    *(Case(3, cols=60, hidden=48, gate_up=(name,), down=name) for name in DENSE),
    *(Case(rows) for rows in (2, 3, 4, 5, 9, 16, 17, 40)),
    *(Case(rows, gate_up=("f32", "bf16"), down="f16", activation="gelu") for rows in (1, 2, 5, 40)),
    Case(4, gate_up=("5-affine", "8-zero128"), down="5-zero16", scale=True),
    Case(40, experts=40, used=8, skew=6.0),
    Case(5, experts=1, used=1),
    Case(5, experts=3, used=3, width=16),
    Case(2, hidden=16, down="bf16"),
]

K4, K6 = "4-two-level-affine", "6-two-level-zero32"

AHEAD = [
    *(Case(rows, 2048, 512, 2048, 256, 8, (K4, K4), K6) for rows in (1, 32)),
    *(
        Case(rows, 2816, 704, 2816, 128, 8, (K4,), "5-affine", "gelu", scale=True, residual=False)
        for rows in (4, 512)
    ),
    Case(16, 2048, 768, 2048, 128, 8, ("8-zero128", "f16"), "8-zero128"),
]
"""What is compiled for cards that are not there: shapes of Qwen3.6, Gemma 4 and Qwen3."""
