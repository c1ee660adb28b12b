"""Keys and values of one layer on the GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from turbodflash_kernels._gpu.canonical import NUMBERS, Arrays, from_bytes, to_bytes
from turbodflash_kernels._gpu.codes import LAYOUTS, PLAIN, elements_per_head, scales_per_head
from turbodflash_kernels.device import moves
from turbodflash_kernels.kv import HeadFormat

if TYPE_CHECKING:
    from turbodflash_kernels._gpu.device import GpuDevice

Bytes = NDArray[np.uint8]
Slots = slice | list[int]
TILE = 64  # slots that kernels read at once; a cache has room for whole tiles


@dataclass(frozen=True, slots=True)
class Side:
    """Keys, or values, as _gpu/codes.py lays them out: tensors [kv_heads, room, *].

    beside, factors: None if the type has none.
    """

    format: HeadFormat
    codes: torch.Tensor
    beside: torch.Tensor | None
    factors: torch.Tensor | None

    @property
    def kind(self) -> str:
        return self.format.type.name

    @property
    def dim(self) -> int:
        """Stored numbers of a head."""
        return self.format.padded

    @property
    def tensors(self) -> list[torch.Tensor]:
        return [part for part in (self.codes, self.beside, self.factors) if part is not None]

    @property
    def written(self) -> tuple[torch.Tensor, ...]:
        """Codes, what lies beside, factors: for kernels that store; what is not there is codes."""
        beside = self.codes if self.beside is None else self.beside
        return self.codes, beside, self.codes if self.factors is None else self.factors

    @property
    def read(self) -> tuple[torch.Tensor, ...]:
        """The same for kernels that load: two factors in one word."""
        codes, beside, factors = self.written
        if self.factors is not None:
            factors = self.factors.flatten().view(torch.int32)
        return codes, beside, factors

    def rows(self, slots: Slots) -> Bytes:
        codes, beside, factors = (
            part if part is None else _on_host(part[:, slots].transpose(0, 1).flatten(0, 1))
            for part in (self.codes, self.beside, self.factors)
        )
        assert codes is not None
        found = to_bytes(self.kind, self.dim, Arrays(codes, beside, factors))
        heads = len(self.codes)
        return found.reshape(len(found) // heads, heads, -1)

    def put_rows(self, slots: Slots, rows: Bytes) -> None:
        n, heads = rows.shape[:2]
        arrays = from_bytes(self.kind, self.dim, rows.reshape(n * heads, -1))
        for part, values in zip((self.codes, self.beside, self.factors), arrays, strict=True):
            if part is not None:
                host = torch.from_numpy(np.ascontiguousarray(values))
                part[:, slots] = host.view(n, heads, -1).transpose(0, 1).to(part.device)


@dataclass(frozen=True, slots=True)
class GpuKV:
    """As the protocol `KV` of devices. room: slots, whole tiles of them; of a ring, the ring."""

    k: Side
    v: Side
    room: int
    ring: int = 0

    @property
    def format_k(self) -> HeadFormat:
        return self.k.format

    @property
    def format_v(self) -> HeadFormat:
        return self.v.format

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for side in (self.k, self.v) for part in side.tensors)

    def read(self, start: int, stop: int) -> tuple[NDArray[Any], NDArray[Any]]:
        k, v = self.rows(start, stop)
        return self.format_k.decode(k), self.format_v.decode(v)

    def rows(self, start: int, stop: int) -> tuple[Bytes, Bytes]:
        slots = self._slots(start, stop)
        return self.k.rows(slots), self.v.rows(slots)

    def put_rows(self, start: int, k: Bytes, v: Bytes) -> None:
        slots = self._slots(start, start + len(k))
        self.k.put_rows(slots, k)
        self.v.put_rows(slots, v)

    def move(self, sources: Sequence[int], to: int) -> None:
        pairs = moves(sources, to)
        if not pairs:
            return
        turn = self.ring or self.room
        old, new = ([pair[side] % turn for pair in pairs] for side in (0, 1))
        for part in [*self.k.tensors, *self.v.tensors]:
            part[:, new] = part[:, old]  # what is read is a copy: no slot is overwritten before

    def _slots(self, start: int, stop: int) -> Slots:
        """Where positions start..stop-1 lie."""
        if not self.ring:
            return slice(start, stop)
        return [position % self.ring for position in range(start, stop)]


def _on_host(values: torch.Tensor) -> NDArray[Any]:
    """Zeros for what a device that only records has."""
    host = torch.zeros(values.shape, dtype=values.dtype) if values.is_meta else values.cpu()
    return host.numpy()


def make(
    format_k: HeadFormat,
    format_v: HeadFormat,
    positions: int,
    kv_heads: int,
    device: GpuDevice,
    ring: int = 0,
) -> GpuKV:
    """Of zeros: what nobody sees is multiplied by 0, which must be 0."""
    room = -(-positions // TILE) * TILE
    k, v = (_side(format, room, kv_heads, device) for format in (format_k, format_v))
    return GpuKV(k, v, room, ring)


def _side(format: HeadFormat, room: int, kv_heads: int, device: GpuDevice) -> Side:
    kind, dim = format.type.name, format.padded

    def zeros(elements: int, dtype: Any) -> torch.Tensor | None:
        return device.zeros((kv_heads, room, elements), dtype) if elements else None

    if kind in PLAIN:
        return Side(format, device.zeros((kv_heads, room, dim), NUMBERS[kind]), None, None)
    words, beside = elements_per_head(kind, dim), LAYOUTS[kind].beside
    return Side(
        format,
        device.zeros((kv_heads, room, words), np.int32),
        zeros(words if beside else 0, np.int16 if beside == 16 else np.int8),
        zeros(scales_per_head(kind, dim), np.float16),
    )
