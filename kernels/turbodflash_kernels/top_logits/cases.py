"""The sweep of the op: heads of every kind of format, capped logits, a part of the vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from turbodflash_kernels.cases import FORMATS, Values, normal, random_part
from turbodflash_kernels.device import Device
from turbodflash_kernels.op import RmsNorm


@dataclass(frozen=True)
class Case:
    """parts: (format, rows of weight) of each part of the head. width: 0 = all of its rows."""

    rows: int
    cols: int
    parts: tuple[tuple[str, int], ...]
    count: int = 1
    width: int = 0
    softcap: float = 0.0
    norm: bool = True

    def __str__(self) -> str:
        parts = "+".join(f"{rows}x{format}" for format, rows in self.parts)
        extras = [f"of{self.width}" * bool(self.width), f"within{self.softcap:g}"]
        extras = [extras[0], extras[1] * bool(self.softcap), "raw" * (not self.norm)]
        return "-".join([f"{self.count}-{self.rows}x{self.cols}", parts, *filter(None, extras)])

    @property
    def lossy_weights(self) -> bool:
        return any(not FORMATS[format].dense for format, _ in self.parts)

    def head(self, device: Device) -> dict[str, Any]:
        """weight and prologue, as they are bound with."""
        parts = [
            random_part(format, rows, self.cols, index)
            for index, (format, rows) in enumerate(self.parts)
        ]
        scale = device.upload(1 + normal(1, self.cols, 5)[0] / np.float32(4))
        prologue = RmsNorm(scale, 1e-5) if self.norm else None
        return {"weight": device.pack(parts, self.cols, searched=True), "prologue": prologue}

    def inputs(self, rows: int) -> Values:
        return {"x": normal(rows, self.cols, 2)}

    def bind(self, device: Device) -> Callable[[Values], Values]:
        """It gives the values, and what all logits have where the ids say; ids of logits that are
        nearly equal may differ from device to device.
        """
        head = self.head(device)
        width = self.width or head["weight"].rows
        top_logits = device.bind(
            "top_logits", **head, softcap=self.softcap, count=self.count, width=width
        )
        linear = device.bind("linear", **head, bias=None)
        softcap = device.bind("softcap", cap=self.softcap) if self.softcap else None

        def run(values: Values) -> Values:
            x = device.upload(values["x"])
            best, ids = map(device.read, top_logits(x))
            best, ids = best.copy(), ids.copy()
            logits = linear(x)[:, :width]
            logits = device.read(softcap(logits) if softcap else logits)
            return {"values": best, "found": np.take_along_axis(logits, ids, axis=1)}

        return run


def one(rows: int, cols: int, format: str, tokens: int, count: int = 1) -> Case:
    return Case(rows, cols, ((format, tokens),), count)


CASES = [
    *(one(3, 256, name, 33, 4) for name in FORMATS),
    *(one(rows, 64, "8-zero128", 1000, 6) for rows in (1, 2, 5, 8, 16, 17)),
    *(one(2, 576, "8-zero128", tokens) for tokens in (1, 16, 17)),
    one(1, 64, "8-zero128", 5000),
    *(one(2, 64, "4-affine", 700, count) for count in (1, 10, 64, 200, 700)),
    Case(4, 96, (("8-zero128", 300),), 8, width=250, softcap=2.0),
    Case(3, 60, (("bf16", 100),), 100, softcap=0.01),
    Case(2, 64, (("5-affine", 17), ("4-zero8", 5), ("8-zero128", 3)), 7, width=20, norm=False),
]

AHEAD = [one(16, 4096, "8-zero128", 151_936, count) for count in (1, 64)]
