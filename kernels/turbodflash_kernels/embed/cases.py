"""The sweep of the op: every format a table can have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from turbodflash_kernels.cases import FORMATS, Values, random_part
from turbodflash_kernels.device import Device


@dataclass(frozen=True)
class Case:
    rows: int
    vocabulary: int
    cols: int
    format: str
    scale: float = 1.0
    lossy_weights: bool = False

    def __str__(self) -> str:
        return f"{self.rows}-of-{self.vocabulary}x{self.cols}-{self.format}"

    def inputs(self, rows: int) -> Values:
        return {"tokens": (np.arange(rows) * 7919 % self.vocabulary).astype(np.int32)}

    def bind(self, device: Device) -> Callable[[Values], Values]:
        table = device.pack([random_part(self.format, self.vocabulary, self.cols, 1)], self.cols)
        embed = device.bind("embed", table=table, scale=self.scale)
        return lambda values: {"x": device.read(embed(device.upload(values["tokens"])))}


def _cols(format: str) -> int:
    return 256 if FORMATS[format].two_level else 96


CASES = [
    *(Case(5, 33, _cols(format), format) for format in FORMATS),
    *(Case(rows, 17, 768, "6-two-level-zero32", 8.0) for rows in (1, 17, 40)),
    *(Case(rows, 577, 576, "8-zero128") for rows in (1, 2, 40)),
    Case(3, 15, 60, "f32", 0.5),
    Case(3, 15, 48, "bf16"),
]

AHEAD = [
    Case(1, 151_936, 4096, "4-two-level-affine"),
    Case(512, 151_936, 5120, "6-two-level-zero32"),
    Case(1, 151_936, 4096, "8-zero128"),
    Case(1, 151_936, 4096, "f16"),
]
