"""The sweep of the op: both pairings, partial rotation, head groups, both cache types."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from turbodflash_kernels.cases import Values, normal
from turbodflash_kernels.device import Device
from turbodflash_kernels.op import Rope


@dataclass(frozen=True)
class Case:
    """start: position of the first row."""

    rows: int
    start: int
    heads: int
    kv_heads: int
    head_dim: int
    rope: Literal["norm", "neox"] = "norm"
    n_rot: int = 0
    format: str = "f16"
    magnitude: float = 1.0
    lossy_weights: bool = False

    def __str__(self) -> str:
        rope = f"{self.rope}{self.n_rot or self.head_dim}"
        shape = f"{self.heads}h{self.kv_heads}x{self.head_dim}"
        return f"{self.rows}@{self.start}-{shape}-{rope}-{self.format}"

    def inputs(self, rows: int) -> Values:
        width = (self.heads + 2 * self.kv_heads) * self.head_dim
        positions = np.arange(self.start, self.start + rows, dtype=np.int32)
        return {"qkv": normal(rows, width, 6), "positions": positions}

    def bind(self, device: Device) -> Callable[[Values], Values]:
        shape = (self.kv_heads, self.head_dim, self.head_dim)
        kv = device.kv(self.format, self.format, self.start + 128, *shape)
        rope_store = device.bind(
            "rope_store",
            kv=kv,
            heads=self.heads,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            rope=self._rope(),
        )

        def run(values: Values) -> Values:
            positions = values["positions"]
            q = device.read(rope_store(*(device.upload(values[key]) for key in values)))
            k, v = kv.read(int(positions[0]), int(positions[-1]) + 1)
            return {"q": q, "k": k, "v": v}

        return run

    def _rope(self) -> Rope:
        n_rot = self.n_rot or self.head_dim
        inv_freq = (10_000.0 ** -(np.arange(0, n_rot, 2) / n_rot)).astype(np.float32)
        return Rope(self.rope, n_rot, inv_freq, self.magnitude)


KINDS: tuple[Literal["norm", "neox"], ...] = ("norm", "neox")

CASES = [
    *(Case(rows, 0, 4, 4, 32, rope) for rows in (1, 2, 3, 8, 17, 40) for rope in KINDS),
    *(Case(3, 300, 3 * kv, kv, dim, "norm") for kv in (1, 3) for dim in (32, 64, 80, 96, 128)),
    *(Case(3, 300, 8, 2, dim, "neox", format="f32") for dim in (64, 80, 96, 128)),
    *(Case(5, 63, 6, 2, 96, rope, n_rot) for rope in KINDS for n_rot in (16, 32, 72)),
    Case(5, 700, 4, 1, 64, "norm", magnitude=1.2),
    Case(1, 15, 9, 3, 64),
    Case(5, 40, 6, 2, 16, format="f32"),
]
