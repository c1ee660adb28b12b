"""Blocks that a head fills half, with codes chosen in pairs: `kv._pairs` in kernels, to the bit."""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl

from turbodflash_kernels._gpu.levels import LEVELS
from turbodflash_kernels.kv._pairs import LENGTH, TWINS, Pairs

_PAIRS = {
    kind: Pairs.of(np.array(LEVELS[kind], np.float32)) for kind in ("turbo2", "turbo3", "turbo4")
}
MIDDLES = {kind: [float(middle) for middle in pairs.middles] for kind, pairs in _PAIRS.items()}
CODES = {
    kind: [int(a) | int(b) << 8 for a, b in zip(pairs.first, pairs.second, strict=True)]
    for kind, pairs in _PAIRS.items()
}
TWIN_WORDS = [int(word) for word in np.packbits(TWINS < 0, bitorder="little").view("<i4")]
DOUBLED = tl.constexpr(float(2 * LENGTH))


@triton.jit
def paired_codes(x, factor, KIND: tl.constexpr):
    """Codes int32 [groups, 128] of x [groups, 128], of which the second halves repeat the first.

    factor [groups]: what makes of a number twice what is coded. `twins` makes of the second halves'
    codes what is stored.
    """
    first, _ = tl.split(tl.permute(tl.reshape(x, [x.shape[0], 2, 64]), (0, 2, 1)))
    doubled = first * factor[:, None]
    size = tl.abs(doubled)
    code = tl.full(doubled.shape, codes(KIND, 0), tl.int32)
    for i in tl.static_range(sums(KIND)):
        code += tl.where(size >= middle(KIND, i), codes(KIND, i + 1) - codes(KIND, i), 0)
    code = tl.where(doubled < 0, code ^ (last(KIND) * 0x101), code)
    both = tl.join(code & 0xFF, code >> 8)
    return tl.reshape(tl.permute(both, (0, 2, 1)), [x.shape[0], 128])


@triton.jit
def twins(code, KIND: tl.constexpr):
    """Codes [groups, 128] of pairs, of the opposite level where a twin is the negative."""
    number = tl.arange(0, 128)
    word = tl.where(number // 32 == 2, twin_word(0), tl.where(number // 32 == 3, twin_word(1), 0))
    flips = (word >> number % 32) & 1 == 1
    return tl.where(flips[None, :], last(KIND) - code, code)


@triton.jit
def sums_of_pairs(held):
    """Levels [groups, 128] -> in both halves the sum of the two of a pair."""
    first, second = tl.split(tl.permute(tl.reshape(held, [held.shape[0], 2, 64]), (0, 2, 1)))
    both = tl.join(first + second, first + second)
    return tl.reshape(tl.permute(both, (0, 2, 1)), [held.shape[0], 128])


@triton.constexpr_function
def sums(kind):
    """How many there are above 0."""
    return len(MIDDLES[kind])


@triton.constexpr_function
def middle(kind, index):
    return MIDDLES[kind][index]


@triton.constexpr_function
def codes(kind, index):
    """The first code, and the second above it."""
    return CODES[kind][index]


@triton.constexpr_function
def last(kind):
    return len(LEVELS[kind]) - 1


@triton.constexpr_function
def twin_word(index):
    """32 numbers of a half: a set bit where the twin is the negative."""
    return TWIN_WORDS[index]
