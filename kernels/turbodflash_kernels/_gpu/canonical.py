"""From the bytes of cache types to the arrays that kernels read, and back, on the host."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from turbodflash_kernels._gpu.codes import LAYOUTS, PLAIN, Fields, fields_of, scales_per_head
from turbodflash_kernels.kv import kv_type, turbo3, turbo4
from turbodflash_kernels.kv._blocks import fifth_bits, fifth_bits_at, joined, nibbles, nibbles_at
from turbodflash_kernels.kv._turbo import pack_pairs, unpack_pairs

Bytes = NDArray[np.uint8]
NUMBERS: dict[str, Any] = {"f32": np.dtype("<f4"), "f16": np.dtype("<f2"), "bf16": np.dtype("<i2")}
PACK = {"turbo2": pack_pairs, "turbo3": turbo3.pack, "turbo4": turbo4.pack}
UNPACK = {"turbo2": unpack_pairs, "turbo3": turbo3.unpack, "turbo4": turbo4.unpack}


class Arrays(NamedTuple):
    """Heads [n, *] as kernels read them: words of codes, or the numbers of a plain type.

    beside: None if the type has none; factors: float16, None of plain types.
    """

    codes: NDArray[Any]
    beside: NDArray[Any] | None = None
    factors: NDArray[Any] | None = None


def from_bytes(kind: str, dim: int, rows: Bytes) -> Arrays:
    """rows [n, row_bytes] of a type, `dim` stored numbers each."""
    if kind in PLAIN:
        return Arrays(np.ascontiguousarray(rows).view(NUMBERS[kind]))
    codes, factors = _read(kind, rows.reshape(-1, kv_type(kind).block_bytes))
    words, beside = _packed(kind, codes.reshape(len(rows), dim).astype(np.int64), dim)
    return Arrays(words, beside, _whole_words(kind, dim, factors.reshape(len(rows), -1)))


def to_bytes(kind: str, dim: int, arrays: Arrays) -> Bytes:
    """The way back."""
    if kind in PLAIN:
        return np.ascontiguousarray(arrays.codes).view(np.uint8)
    rows, block = len(arrays.codes), kv_type(kind).block
    assert arrays.factors is not None
    per_block = max(LAYOUTS[kind].factors, 1)
    factors = arrays.factors[:, : dim // block * per_block].reshape(-1, per_block)
    codes = _unpacked(kind, arrays, dim).astype(np.uint8).reshape(-1, block)
    return _written(kind, codes, factors).reshape(rows, -1)


# -- blocks of a file: factors, fifth bits, nibbles ------------------------------------------------


def _read(kind: str, blocks: Bytes) -> tuple[Any, Any]:
    """Codes [n, block] and factors [n, 1 or 2] of blocks [n, block_bytes]."""
    at = 2 * max(LAYOUTS[kind].factors, 1)
    factors = np.ascontiguousarray(blocks[:, :at]).view("<f2")
    if kind in UNPACK:
        return UNPACK[kind](blocks[:, at:]), factors
    if kind == "q8_0":
        return blocks[:, at:] + np.uint8(128), factors
    if LAYOUTS[kind].beside:
        return nibbles_at(blocks, at + 4) | fifth_bits_at(blocks, at), factors
    return nibbles_at(blocks, at), factors


def _written(kind: str, codes: Bytes, factors: NDArray[np.float16]) -> Bytes:
    """The way back."""
    if kind in PACK:
        return joined(factors, PACK[kind](codes))
    if kind == "q8_0":
        return joined(factors, codes - np.uint8(128))
    if LAYOUTS[kind].beside:
        return joined(factors, fifth_bits(codes), nibbles(codes & 0xF))
    return joined(factors, nibbles(codes))


def _whole_words(kind: str, dim: int, factors: NDArray[np.float16]) -> NDArray[np.float16]:
    missing = scales_per_head(kind, dim) - factors.shape[1]
    return np.pad(factors, ((0, 0), (0, missing)))


# -- words -----------------------------------------------------------------------------------------


def _packed(kind: str, codes: NDArray[np.int64], dim: int) -> tuple[Any, Any]:
    """Codes [n, dim] as words int32, and the bits beside them."""
    layout, fields = LAYOUTS[kind], fields_of(kind, dim)
    if layout.signed:
        half = 2 ** (layout.bits + (layout.beside > 0)) // 2
        negative = codes < half
        low, top = np.where(negative, half - 1 - codes, codes - half), negative.astype(np.int64)
    else:
        low, top = codes & (2**layout.bits - 1), codes >> layout.bits
    words = _gathered(low << fields.shift, fields, dim * layout.bits // 32)
    if layout.signed and not layout.beside:
        words |= _gathered(top << fields.sign, fields, words.shape[1])
    beside = None
    if layout.beside:
        bits = _gathered(top << fields.beside, fields, words.shape[1])
        beside = bits.astype(f"u{layout.beside // 8}").view(f"i{layout.beside // 8}")
    return words.astype(np.uint32).view(np.int32), beside


def _unpacked(kind: str, arrays: Arrays, dim: int) -> NDArray[np.int64]:
    """The way back: codes [n, dim]."""
    layout, fields = LAYOUTS[kind], fields_of(kind, dim)
    words = arrays.codes.view(np.uint32).astype(np.int64)[:, fields.word]
    bits = layout.bits - (layout.signed and not layout.beside)
    low = words >> fields.shift & (2**bits - 1)
    if arrays.beside is not None:
        kept = arrays.beside.view(f"u{layout.beside // 8}").astype(np.int64)
        top = kept[:, fields.word] >> fields.beside & 1
    else:
        top = words >> fields.sign & 1
    if layout.signed:
        half = 2**bits
        return np.where(top == 1, half - 1 - low, half + low)
    return low | top << layout.bits if layout.beside else low


def _gathered(bits: NDArray[np.int64], fields: Fields, words: int) -> NDArray[np.int64]:
    """Bits [n, dim] of different fields, put together by words [n, words]."""
    order = np.argsort(fields.word, kind="stable")
    return bits[:, order].reshape(len(bits), words, -1).sum(axis=2)
