"""Blocks that a head fills half, with codes chosen in pairs: `kv._pairs` in kernels, to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton
import triton.language as tl
from numpy.typing import NDArray

from turbodflash_kernels._gpu.hadamard import log2
from turbodflash_kernels._gpu.levels import LEVELS
from turbodflash_kernels.kv._pairs import LENGTH, TWINS, Pairs

TWIN_WORDS = [int(word) for word in np.packbits(TWINS < 0, bitorder="little").view("<i4")]
DOUBLED = tl.constexpr(float(2 * LENGTH))


def table(kind: str) -> NDArray[Any]:
    """What kernels look up: middles f32 [n], codes [n + 1], the second above the first, and sums
    [n + 1]; n is half of the levels squared."""
    pairs = Pairs.of(np.array(LEVELS[kind], np.float32))
    codes = pairs.first.astype(np.float32) + 256 * pairs.second.astype(np.float32)
    return np.concatenate([pairs.middles, codes, pairs.sums])


@triton.jit
def paired_codes(x, factor, pairs, KIND: tl.constexpr):
    """x [groups, 128], whose second halves repeat the first, times factor [groups], which makes of
    a number twice what is coded: codes int32 [groups, 128], and the sums of their levels [*, 64].
    """
    MIDDLES: tl.constexpr = middles(KIND)
    LAST: tl.constexpr = last(KIND)
    first, _ = tl.split(tl.permute(tl.reshape(x, [x.shape[0], 2, 64]), (0, 2, 1)))
    doubled = first * factor[:, None]
    size = tl.abs(doubled)
    place = tl.zeros(doubled.shape, tl.int32)  # how many middles are not above
    for i in tl.static_range(log2(MIDDLES)):
        there = tl.load(pairs + place + ((MIDDLES >> (i + 1)) - 1))
        place += tl.where(size >= there, MIDDLES >> (i + 1), 0)
    place += tl.where(size >= tl.load(pairs + place), 1, 0)
    code = tl.load(pairs + MIDDLES + place).to(tl.int32)
    code = tl.where(doubled < 0, code ^ (LAST * 0x101), code)
    number = tl.arange(0, 64)
    flips = (tl.where(number < 32, twin_word(0), twin_word(1)) >> number % 32) & 1 == 1
    second = tl.where(flips[None, :], LAST - (code >> 8), code >> 8)
    both = tl.permute(tl.join(code & 0xFF, second), (0, 2, 1))
    return tl.reshape(both, [x.shape[0], 128]), tl.load(pairs + 2 * MIDDLES + 1 + place)


@triton.constexpr_function
def middles(kind):
    """How many there are between sums of two levels, from 0 up."""
    return len(LEVELS[kind]) ** 2 // 4


@triton.constexpr_function
def last(kind):
    return len(LEVELS[kind]) - 1


@triton.constexpr_function
def twin_word(index):
    """32 numbers of a half: a set bit where the twin is the negative."""
    return TWIN_WORDS[index]
