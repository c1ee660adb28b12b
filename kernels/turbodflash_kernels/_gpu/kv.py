"""Keys and values of one layer on the GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from turbodflash_kernels.device import moves
from turbodflash_kernels.errors import NoKernel

if TYPE_CHECKING:
    from turbodflash_kernels._gpu.device import GpuDevice

TYPES = {"f32": np.float32, "f16": np.float16}


@dataclass(frozen=True, slots=True)
class GpuKV:
    """k, v: [kv_heads, positions, head_dim]."""

    format_k: str
    format_v: str
    k: torch.Tensor
    v: torch.Tensor

    @property
    def nbytes(self) -> int:
        return self.k.nbytes + self.v.nbytes

    def read(self, start: int, stop: int) -> tuple[NDArray[Any], NDArray[Any]]:
        k, v = (side[:, start:stop].transpose(0, 1).cpu().numpy() for side in (self.k, self.v))
        return k, v

    def move(self, sources: Sequence[int], to: int) -> None:
        for source, target in moves(sources, to):
            self.k[:, target] = self.k[:, source]
            self.v[:, target] = self.v[:, source]


def make(
    format_k: str,
    format_v: str,
    positions: int,
    kv_heads: int,
    head_dim_k: int,
    head_dim_v: int,
    device: GpuDevice,
) -> GpuKV:
    for name in (format_k, format_v):
        if name not in TYPES:
            raise NoKernel(f"the GPU has no cache type {name!r}; it has: {', '.join(TYPES)}")
    return GpuKV(
        format_k,
        format_v,
        device.zeros((kv_heads, positions, head_dim_k), TYPES[format_k]),
        device.zeros((kv_heads, positions, head_dim_v), TYPES[format_v]),
    )
