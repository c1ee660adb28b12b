"""What is remembered as named arrays, each read only when it is its turn."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from turbodflash_kernels.device import KV
from turbodflash_kernels.op import Rope

Arrays = Mapping[str, NDArray[Any]]
"""Pieces as they were saved: read-only, and of any shape that a stranger may have written."""


class Piece(NamedTuple):
    """dtype: "U8", "I32" or "F32". read: the array of this shape, on the host."""

    dtype: str
    shape: tuple[int, ...]
    read: Callable[[], NDArray[Any]]


Pieces = dict[str, Piece]


def below(start: str, pieces: Pieces) -> Pieces:
    """The same under names that begin so."""
    return {start + name: piece for name, piece in pieces.items()}


def within(saved: Arrays, start: str) -> Arrays:
    """Those whose names begin so, without that beginning."""
    return {name[len(start) :]: each for name, each in saved.items() if name.startswith(start)}


def kv_piece(kv: KV, count: int, first: int = 0) -> Piece:
    """So many slots in the bytes of their types: uint8 [count, kv_heads, K and V]."""
    _, heads, _ = kv.rows(0, 1)[0].shape

    def read() -> NDArray[Any]:
        return np.concatenate(kv.rows(first, first + count), axis=2)

    return Piece("U8", (count, heads, _row_bytes(kv)), read)


def put_kv(kv: KV, rows: NDArray[Any], count: int, first: int = 0) -> None:
    """So many slots become what they had been. Raises ValueError for other shapes."""
    heads = kv.rows(0, 1)[0].shape[1]
    expect(rows, "uint8", count, heads, _row_bytes(kv))
    if count:
        keys = kv.format_k.row_bytes
        k, v = rows[:, :, :keys], rows[:, :, keys:]
        kv.put_rows(first, np.ascontiguousarray(k), np.ascontiguousarray(v))


def expect(array: NDArray[Any], dtype: str, *shape: int) -> None:
    """Raises ValueError for any other array."""
    if array.shape != shape or array.dtype != dtype:
        raise ValueError(f"{array.dtype}{list(array.shape)} instead of {dtype}{list(shape)}")


def form_of(kv: KV, rope: Rope | None) -> str:
    """How slots are stored, and what keys are rotated by: bytes of one form mean one thing."""
    sides = (
        f"{side.type.name}:{side.head_dim}:{side.rotation.kind}"
        for side in (kv.format_k, kv.format_v)
    )
    turned = "none"
    if rope is not None:
        angles = hashlib.sha256(np.asarray(rope.inv_freq, "<f4").tobytes()).hexdigest()[:16]
        turned = f"{rope.kind}:{rope.n_rot}:{rope.magnitude!r}:{angles}"
    return "/".join((*sides, turned))


def _row_bytes(kv: KV) -> int:
    return kv.format_k.row_bytes + kv.format_v.row_bytes
