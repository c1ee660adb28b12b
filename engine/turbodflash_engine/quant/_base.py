"""What every weight type offers, and the moves they share.

The moves keep to a rule: a numpy pass over short runs (16 bytes of one block, then of the next)
costs ten times a pass over a whole buffer. So runs are moved as single opaque items, and
arithmetic is done on whole buffers, eight bytes at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from turbodflash_kernels.blocks import Blocks
from turbodflash_kernels.planar import Format, Planar

Bytes = NDArray[np.uint8]

IQ4_TABLE = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
"""What the sixteen codes of the non-linear 4-bit types stand for."""

E2M1_TABLE = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
"""Twice the values of floats with two bits of exponent and one of mantissa."""


class WeightType(NamedTuple):
    """A tensor type that can be computed with.

    name, type_id: as GGUF has them. `block` weights of a row take `block_bytes`.
    decode: uint8 [rows, row_bytes], contiguous -> Planar of those rows, in new memory (a dense type
    may view the argument). It is fastest on about a quarter of a million
    weights at a time, which stay in a core's cache.
    blocks: the same for devices that decode by themselves; None = `decode` alone knows.
    """

    name: str
    type_id: int
    block: int
    block_bytes: int
    format: Format
    decode: Callable[[Bytes], Planar]
    blocks: Blocks | None = None


def field(raw: Bytes, block_bytes: int, at: int, nbytes: int) -> Bytes:
    """Bytes `at` to `at + nbytes` of every block: uint8 [rows, blocks * nbytes], a copy."""
    blocks = raw.reshape(len(raw), raw.shape[1] // block_bytes, block_bytes)
    runs = blocks[:, :, at : at + nbytes].view(f"V{nbytes}").copy()
    return runs.view(np.uint8).reshape(len(raw), blocks.shape[1] * nbytes)


def half(raw: Bytes, block_bytes: int, at: int) -> NDArray[np.float16]:
    """The float16 at byte `at` of every block: [rows, blocks]."""
    return field(raw, block_bytes, at, 2).view("<f2")


def planes(packed: Bytes, bits: int, width: int, at: int = 0) -> Bytes:
    """Codes of `bits` bits that share bytes, one a byte: [rows, n] -> [rows, n * 8 / bits].

    Each run of `width` bytes becomes 8 / bits runs: the lowest bits of all its bytes first.
    at: the bit of the byte where the code shall start.
    """
    rows, nbytes = packed.shape
    words = packed.view(np.uint64)
    mask = np.uint64(0x0101010101010101 * (((1 << bits) - 1) << at))
    codes: NDArray[Any] = np.empty((rows, nbytes // width, 8 // bits), f"V{width}")
    plane = np.empty_like(words)
    for index in range(8 // bits):
        np.bitwise_and(_shifted(words, bits * index - at, plane), mask, out=plane)
        codes[:, :, index] = plane.view(codes.dtype)
    unpacked: Bytes = codes.view(np.uint8).reshape(rows, -1)
    return unpacked


def _shifted(words: NDArray[np.uint64], down: int, out: NDArray[np.uint64]) -> NDArray[np.uint64]:
    if down == 0:
        return words
    shift = np.right_shift if down > 0 else np.left_shift
    return shift(words, np.uint64(abs(down)), out=out)


_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
_FIFTH_BITS = (_BITS << 4).view(np.uint64)[:, 0]  # eight codes for each byte of eight bits


def fifth_bits(packed: Bytes) -> Bytes:
    """One bit a code, in code order, as 0 or 16: [rows, n] -> [rows, n * 8]."""
    return _FIFTH_BITS[packed].view(np.uint8)


def scales_and_mins(packed: Bytes) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
    """Eight 6-bit scales and eight 6-bit minima out of each 12 bytes: int8 [rows, blocks * 8]."""
    low, mid, high = _words(packed)
    low_six, top_two, low_four = (np.uint32(0x01010101 * m) for m in (0x3F, 0x30, 0x0F))
    scales = [low & low_six, (high & low_four) | ((low >> 2) & top_two)]
    mins = [mid & low_six, ((high >> 4) & low_four) | ((mid >> 2) & top_two)]
    return _interleaved(scales), _interleaved(mins)


def sixteen_scales(packed: Bytes) -> NDArray[np.int8]:
    """Sixteen signed 6-bit scales out of each 12 bytes: int8 [rows, blocks * 16]."""
    low, mid, high = _words(packed)
    low_four, top_two = np.uint32(0x0F0F0F0F), np.uint32(0x30303030)
    scales = _interleaved(
        [
            (low & low_four) | ((high << 4) & top_two),
            (mid & low_four) | ((high << 2) & top_two),
            ((low >> 4) & low_four) | (high & top_two),
            ((mid >> 4) & low_four) | ((high >> 2) & top_two),
        ]
    )
    scales -= np.int8(32)
    return scales


def _words(packed: Bytes) -> tuple[NDArray[np.uint32], ...]:
    """Three little-endian words of each 12 bytes: [rows, blocks] each."""
    words = packed.view("<u4").reshape(len(packed), packed.shape[1] // 12, 3)
    return tuple(np.ascontiguousarray(words[:, :, index]) for index in range(3))


def _interleaved(words: list[NDArray[np.uint32]]) -> NDArray[np.int8]:
    return np.stack(words, axis=2).view(np.int8).reshape(len(words[0]), -1)
