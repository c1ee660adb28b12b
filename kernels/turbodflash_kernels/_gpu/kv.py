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
from turbodflash_kernels.kv import HeadFormat

if TYPE_CHECKING:
    from turbodflash_kernels._gpu.device import GpuDevice

TYPES = {"f32": np.float32, "f16": np.float16}


@dataclass(frozen=True, slots=True)
class GpuKV:
    """k, v: [kv_heads, positions, head_dim]."""

    format_k: HeadFormat
    format_v: HeadFormat
    k: torch.Tensor
    v: torch.Tensor

    @property
    def nbytes(self) -> int:
        return self.k.nbytes + self.v.nbytes

    def read(self, start: int, stop: int) -> tuple[NDArray[Any], NDArray[Any]]:
        k, v = (side[:, start:stop].transpose(0, 1).cpu().numpy() for side in (self.k, self.v))
        return k, v

    def rows(self, start: int, stop: int) -> tuple[NDArray[Any], NDArray[Any]]:
        k, v = self.read(start, stop)
        return self.format_k.encode(k), self.format_v.encode(v)

    def put_rows(self, start: int, k: NDArray[Any], v: NDArray[Any]) -> None:
        for side, heads in ((self.k, self.format_k.decode(k)), (self.v, self.format_v.decode(v))):
            side[:, start : start + len(heads)] = torch.from_numpy(heads).transpose(0, 1)

    def move(self, sources: Sequence[int], to: int) -> None:
        for source, target in moves(sources, to):
            self.k[:, target] = self.k[:, source]
            self.v[:, target] = self.v[:, source]


def make(
    format_k: HeadFormat, format_v: HeadFormat, positions: int, kv_heads: int, device: GpuDevice
) -> GpuKV:
    sides = []
    for format in (format_k, format_v):
        name = format.type.name
        if name not in TYPES:
            raise NoKernel(f"the GPU has no cache type {name!r}; it has: {', '.join(TYPES)}")
        sides.append(device.zeros((kv_heads, positions, format.head_dim), TYPES[name]))
    return GpuKV(format_k, format_v, *sides)
