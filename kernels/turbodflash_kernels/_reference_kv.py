"""Keys and values on the reference device: in the bytes of their types, or unrounded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turbodflash_kernels.device import moves
from turbodflash_kernels.kv import HeadFormat

Floats = NDArray[Any]
Bytes = NDArray[np.uint8]
Slots = slice | NDArray[Any]


@dataclass(frozen=True, slots=True)
class Coded:
    """One side of a cache. data: uint8 [positions, kv_heads, row_bytes]."""

    format: HeadFormat
    data: NDArray[Any]

    @classmethod
    def empty(cls, format: HeadFormat, positions: int, kv_heads: int, poison: bool) -> Coded:
        """poison: of bytes that mean NaN in every type."""
        filling = 0xFF if poison else 0
        return cls(format, np.full((positions, kv_heads, format.row_bytes), filling, np.uint8))

    def put(self, slots: Slots, x: Floats) -> None:
        """x: heads [n, kv_heads, head_dim]."""
        self.data[slots] = self.format.encode(x)

    def stored(self, stop: int) -> Floats:
        """The stored numbers [stop, kv_heads, padded] of the first slots."""
        return self.format.type.decode(self.data[:stop])

    def heads(self, start: int, stop: int) -> Floats:
        """Heads [stop - start, kv_heads, head_dim]."""
        return self.format.decode(self.data[start:stop])

    def rows(self, start: int, stop: int) -> Bytes:
        return self.data[start:stop].copy()

    def put_rows(self, start: int, rows: Bytes) -> None:
        self.data[start : start + len(rows)] = rows


@dataclass(frozen=True, slots=True)
class Unrounded:
    """One side of a cache that loses nothing. data: f64 [positions, kv_heads, padded]."""

    format: HeadFormat
    data: NDArray[Any]

    @classmethod
    def empty(cls, format: HeadFormat, positions: int, kv_heads: int, poison: bool) -> Unrounded:
        filling = np.nan if poison else 0.0
        return cls(format, np.full((positions, kv_heads, format.padded), filling))

    def put(self, slots: Slots, x: Floats) -> None:
        self.data[slots] = self.format.turned(x)

    def stored(self, stop: int) -> Floats:
        return self.data[:stop]

    def heads(self, start: int, stop: int) -> Floats:
        return self.format.back(self.data[start:stop])

    def rows(self, start: int, stop: int) -> Bytes:
        return self.format.type.encode(self.data[start:stop])

    def put_rows(self, start: int, rows: Bytes) -> None:
        self.data[start : start + len(rows)] = self.format.type.decode(rows)


@dataclass(frozen=True, slots=True)
class ReferenceKV:
    """As the protocol `KV` of devices."""

    k: Coded | Unrounded
    v: Coded | Unrounded

    @property
    def format_k(self) -> HeadFormat:
        return self.k.format

    @property
    def format_v(self) -> HeadFormat:
        return self.v.format

    @property
    def nbytes(self) -> int:
        return self.k.data.nbytes + self.v.data.nbytes

    def read(self, start: int, stop: int) -> tuple[Floats, Floats]:
        return self.k.heads(start, stop), self.v.heads(start, stop)

    def rows(self, start: int, stop: int) -> tuple[Bytes, Bytes]:
        return self.k.rows(start, stop), self.v.rows(start, stop)

    def put_rows(self, start: int, k: Bytes, v: Bytes) -> None:
        self.k.put_rows(start, k)
        self.v.put_rows(start, v)

    def move(self, sources: Sequence[int], to: int) -> None:
        for source, target in moves(sources, to):
            self.k.data[target], self.v.data[target] = self.k.data[source], self.v.data[source]
