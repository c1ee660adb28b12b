"""The turbo types: 128 numbers, rotated, as levels of a normal distribution times one norm.

The norm is such that the levels have the length of the numbers they stand for. Of a head that fills
half a block, codes are chosen in pairs (see _pairs).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from turbodflash_kernels.kv._base import F16_MOST, Bytes, Floats, KVType, sum_of_halves
from turbodflash_kernels.kv._blocks import half, half_at, joined
from turbodflash_kernels.kv._pairs import LENGTH, Pairs, means
from turbodflash_kernels.kv._rotation import TURBO_BLOCK

SHORTEST = np.float32(1e-10)
"""A vector that is not longer has no direction."""

MOST = 2.0**60
"""Squares of numbers up to this size can be summed; the norm itself is held at 65504."""


def turbo_type(
    name: str,
    *,
    levels: Floats,
    middles: Floats,
    pack: Callable[[Bytes], Bytes],
    unpack: Callable[[Bytes], Bytes],
) -> KVType:
    """levels, middles: all of them, ascending.

    pack: codes uint8 [n, 128] -> the bytes behind the norm; unpack: the way back.
    """

    def encode(y: Floats) -> Bytes:
        length = np.sqrt(sum_of_halves(y * y))
        long = length > SHORTEST
        factor = np.where(long, 1 / np.where(long, length, 1), 0).astype(np.float32)
        code = np.searchsorted(middles, y * factor[:, None], side="right").astype(np.uint8)
        norm = length / np.sqrt(sum_of_halves(np.square(levels[code])))
        return joined(half(np.minimum(norm, np.float32(F16_MOST))), pack(code))

    pairs = Pairs.of(levels)

    def encode_half(y: Floats) -> Bytes:
        """The norm is such that the head, not the block, keeps its length."""
        numbers = means(y)
        length = np.sqrt(np.float32(2) * sum_of_halves(numbers * numbers))
        long = length > SHORTEST
        factor = np.where(long, 2 * LENGTH / np.where(long, length, 1), 0).astype(np.float32)
        code, sums = pairs.nearest(numbers * factor[:, None])
        squares = np.float32(0.5) * sum_of_halves(sums * sums)
        norm = length / np.where(long, np.sqrt(squares), 1)
        return joined(half(np.minimum(norm, np.float32(F16_MOST))), pack(code))

    def decode(blocks: Bytes) -> Floats:
        return half_at(blocks, 0) * levels[unpack(blocks[:, 2:])]

    code_bytes = pack(np.zeros((1, TURBO_BLOCK), np.uint8)).shape[1]
    return KVType(name, TURBO_BLOCK, 2 + code_bytes, MOST, encode, decode, "turbo", encode_half)


def symmetric(*positive: float) -> Floats:
    """Ascending, each with both signs; 0 once."""
    upper = np.array(positive, np.float32)
    return np.concatenate([-upper[upper > 0][::-1], upper])


def pack_pairs(code: Bytes) -> Bytes:
    """Codes of two bits, four a byte, the first lowest: [n, 128] -> [n, 32]."""
    four = code.reshape(len(code), code.shape[1] // 4, 4)
    return four[:, :, 0] | four[:, :, 1] << 2 | four[:, :, 2] << 4 | four[:, :, 3] << 6


def unpack_pairs(packed: Bytes) -> Bytes:
    shifts = np.arange(0, 8, 2, dtype=np.uint8)
    return (packed[:, :, None] >> shifts & 3).reshape(len(packed), -1)
