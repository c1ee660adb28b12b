"""The sweep of the op: contexts around tile edges, head groups, head sizes, both cache types."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from turbodflash_kernels.cases import Values, normal
from turbodflash_kernels.device import KV, Device
from turbodflash_kernels.op import Rope


@dataclass(frozen=True)
class Case:
    """context: keys that the first row sees."""

    rows: int
    context: int
    heads: int
    kv_heads: int
    head_dim: int
    format: str = "f16"
    lossy_weights: bool = False

    def __str__(self) -> str:
        shape = f"{self.heads}h{self.kv_heads}x{self.head_dim}"
        return f"{self.rows}@{self.context}-{shape}-{self.format}"

    def inputs(self, rows: int) -> Values:
        positions = np.arange(self.context - 1, self.context - 1 + rows, dtype=np.int32)
        # some heads nearly even, some nearly one-hot
        sharpness = np.repeat(np.linspace(0.2, 4, self.heads, dtype="f4"), self.head_dim)
        return {
            "q": normal(rows, self.heads * self.head_dim, 7) * sharpness,
            "positions": positions,
        }

    def bind(self, device: Device) -> Callable[[Values], Values]:
        kv = self._filled(device, self.context + 127)
        attend = device.bind("attend", kv=kv, **self._shape(), scale=self.head_dim**-0.5)
        return lambda values: {
            "y": device.read(attend(*(device.upload(values[key]) for key in values)))
        }

    def _filled(self, device: Device, positions: int) -> KV:
        """A cache whose contents every device and precision holds exactly: nothing is rotated."""
        kv = device.kv(
            self.format, self.format, positions, self.kv_heads, self.head_dim, self.head_dim
        )
        still = Rope("neox", self.head_dim, np.zeros(self.head_dim // 2, np.float32))
        store = device.bind("rope_store", kv=kv, **self._shape(), rope=still)
        keys_and_values = normal(positions, 2 * self.kv_heads * self.head_dim, 8)
        qkv = np.hstack([np.zeros((positions, self.heads * self.head_dim)), keys_and_values])
        qkv = qkv.astype(np.float16).astype(np.float32)
        device.read(store(device.upload(qkv), device.upload(np.arange(positions, dtype=np.int32))))
        return kv

    def _shape(self) -> dict[str, Any]:
        return {"heads": self.heads, "kv_heads": self.kv_heads, "head_dim": self.head_dim}


CONTEXTS = (1, 15, 16, 17, 63, 64, 65, 300, 700)

CASES = [
    *(Case(1, context, 9, 3, 64) for context in CONTEXTS),
    *(Case(5, context, 4, 1, 64, "f32") for context in CONTEXTS),
    *(Case(rows, 65, 4, 4, 32) for rows in (1, 2, 3, 5, 8, 16, 17, 40)),
    *(Case(rows, 17, 6, 2, 96) for rows in (1, 3, 8, 40)),
    *(Case(3, 64, 3 * kv, kv, dim) for kv in (1, 2) for dim in (16, 32, 64, 80, 96, 128)),
    *(Case(17, 300, heads, 2, 128, format) for heads in (2, 8) for format in ("f16", "f32")),
]
