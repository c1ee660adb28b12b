"""Keys and values of one layer, laid out for sixteen lanes.

K: [kv_heads, positions / 16, head_dim, 16], so that the scores of sixteen keys come in one vector.
V: [kv_heads, positions, head_dim]. Both in chunks of 128 positions, the unit of attention.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turbodflash_kernels._cpu.team import aligned
from turbodflash_kernels.device import moves
from turbodflash_kernels.errors import NoKernel
from turbodflash_kernels.kv import HeadFormat

CHUNK = 128
PARTIAL_EXTRA = 16  # floats after a chunk's vector: its maximum and its sum, padded
TYPES = {"f32": np.float32, "f16": np.float16}


@dataclass(frozen=True, slots=True)
class CpuKV:
    format_k: HeadFormat
    format_v: HeadFormat
    k: NDArray[Any]  # [kv_heads, positions / 16, head_dim, 16]
    v: NDArray[Any]  # [kv_heads, positions, head_dim]
    flush: Callable[[], None]

    @property
    def nbytes(self) -> int:
        return self.k.nbytes + self.v.nbytes

    @property
    def positions(self) -> int:
        return self.v.shape[1]

    def read(self, start: int, stop: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """K and V of positions start..stop-1, each [stop - start, kv_heads, head_dim]."""
        self.flush()
        heads, blocks, head_dim, lanes = self.k.shape
        k = self.k.transpose(1, 3, 0, 2).reshape(blocks * lanes, heads, head_dim)
        return k[start:stop].copy(), self.v.transpose(1, 0, 2)[start:stop].copy()

    def rows(self, start: int, stop: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """As KV.rows."""
        k, v = self.read(start, stop)
        return self.format_k.encode(k), self.format_v.encode(v)

    def put_rows(self, start: int, k: NDArray[Any], v: NDArray[Any]) -> None:
        """As KV.put_rows."""
        self.flush()
        slots = np.arange(start, start + len(k))
        self.k[:, slots // 16, :, slots % 16] = self.format_k.decode(k)
        self.v[:, start : start + len(v)] = self.format_v.decode(v).swapaxes(0, 1)

    def move(self, sources: Sequence[int], to: int) -> None:
        """As KV.move."""
        self.flush()
        for source, target in moves(sources, to):
            self.k[:, target // 16, :, target % 16] = self.k[:, source // 16, :, source % 16]
            self.v[:, target] = self.v[:, source]


def make(
    format_k: HeadFormat,
    format_v: HeadFormat,
    positions: int,
    kv_heads: int,
    flush: Callable[[], None],
) -> CpuKV:
    for format in (format_k, format_v):
        if format.type.name not in TYPES:
            raise NoKernel(
                f"the CPU has no cache type {format.type.name!r}; it has: {', '.join(TYPES)}"
            )
    room = -(-positions // CHUNK) * CHUNK
    return CpuKV(
        format_k,
        format_v,
        _zeros((kv_heads, room // 16, format_k.head_dim, 16), TYPES[format_k.type.name]),
        _zeros((kv_heads, room, format_v.head_dim), TYPES[format_v.type.name]),
        flush,
    )


def _zeros(shape: tuple[int, ...], kind: Any) -> NDArray[Any]:
    """In small pages: the first token touches each layer and head, and would make the whole of a
    long context resident in huge ones, a quarter of a second for 190 MB."""
    return aligned(prod(shape), kind).reshape(shape)
