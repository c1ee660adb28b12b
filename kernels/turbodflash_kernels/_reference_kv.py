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
Slots = NDArray[Any]


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

    def stored(self, slots: Slots) -> Floats:
        """The stored numbers [n, kv_heads, padded] of these slots."""
        return self.format.type.decode(self.data[slots])

    def heads(self, slots: Slots) -> Floats:
        """Heads [n, kv_heads, head_dim]."""
        return self.format.decode(self.data[slots])

    def rows(self, slots: Slots) -> Bytes:
        return self.data[slots]

    def put_rows(self, slots: Slots, rows: Bytes) -> None:
        self.data[slots] = rows


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

    def stored(self, slots: Slots) -> Floats:
        return self.data[slots]

    def heads(self, slots: Slots) -> Floats:
        return self.format.back(self.data[slots])

    def rows(self, slots: Slots) -> Bytes:
        return self.format.encode_turned(self.data[slots])

    def put_rows(self, slots: Slots, rows: Bytes) -> None:
        self.data[slots] = self.format.type.decode(rows)


@dataclass(frozen=True, slots=True)
class ReferenceKV:
    """As the protocol `KV` of devices."""

    k: Coded | Unrounded
    v: Coded | Unrounded
    ring: int = 0

    @property
    def format_k(self) -> HeadFormat:
        return self.k.format

    @property
    def format_v(self) -> HeadFormat:
        return self.v.format

    @property
    def nbytes(self) -> int:
        return self.k.data.nbytes + self.v.data.nbytes

    def slots(self, positions: NDArray[Any]) -> Slots:
        """Where these positions lie."""
        return positions % self.ring if self.ring else positions

    def read(self, start: int, stop: int) -> tuple[Floats, Floats]:
        slots = self.slots(np.arange(start, stop))
        return self.k.heads(slots), self.v.heads(slots)

    def rows(self, start: int, stop: int) -> tuple[Bytes, Bytes]:
        slots = self.slots(np.arange(start, stop))
        return self.k.rows(slots), self.v.rows(slots)

    def put_rows(self, start: int, k: Bytes, v: Bytes) -> None:
        slots = self.slots(np.arange(start, start + len(k)))
        self.k.put_rows(slots, k)
        self.v.put_rows(slots, v)

    def move(self, sources: Sequence[int], to: int) -> None:
        pairs = np.array(moves(sources, to), np.int64).reshape(-1, 2)
        for source, target in self.slots(pairs):
            self.k.data[target], self.v.data[target] = self.k.data[source], self.v.data[source]
