"""Rotations of heads in kernels: float32 butterflies in the order of kv/_rotation.py."""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl

from turbodflash_kernels.kv._rotation import SIGNS_AFTER, SIGNS_BEFORE

SIGN_WORDS = [
    [int(word) for word in np.packbits(signs < 0, bitorder="little").view("<i4")]
    for signs in (SIGNS_BEFORE, SIGNS_AFTER)
]


@triton.jit
def turned(x, N: tl.constexpr, ROTATION: tl.constexpr, BLOCK: tl.constexpr):
    """x float32 [N], N a power of two, each BLOCK of it rotated."""
    if ROTATION == "hadamard":
        x = _hadamard(x, N, BLOCK)
    elif ROTATION == "turbo":
        x = _signed(_hadamard(_signed(x, N, 0), N, BLOCK), N, 1)
    return x


@triton.jit
def turned_back(x, N: tl.constexpr, ROTATION: tl.constexpr, BLOCK: tl.constexpr):
    """The inverse of `turned`."""
    if ROTATION == "hadamard":
        x = _hadamard(x, N, BLOCK)
    elif ROTATION == "turbo":
        x = _signed(_hadamard(_signed(x, N, 1), N, BLOCK), N, 0)
    return x


@triton.jit
def _hadamard(x, N: tl.constexpr, BLOCK: tl.constexpr):
    for i in tl.static_range(log2(BLOCK)):
        x = _butterfly(x, N, 2**i)
    return x * (BLOCK**-0.5)


@triton.jit
def _butterfly(x, N: tl.constexpr, DISTANCE: tl.constexpr):
    """The sums and differences of all pairs that are so far apart."""
    pairs = tl.reshape(x, [N // (2 * DISTANCE), 2, DISTANCE])
    first, second = tl.split(tl.permute(pairs, (0, 2, 1)))
    both = tl.permute(tl.join(first + second, first - second), (0, 2, 1))
    return tl.reshape(both, [N])


@triton.jit
def _signed(x, N: tl.constexpr, WHICH: tl.constexpr):
    """x times the signs of the turbo types, before or after the Hadamard matrix."""
    element = tl.arange(0, N) % 128
    word = tl.zeros([N], tl.int32)
    for i in tl.static_range(4):
        word = tl.where(element // 32 == i, sign_word(WHICH, i), word)
    return tl.where((word >> element % 32) & 1 == 1, -x, x)


@triton.constexpr_function
def log2(number):
    return number.bit_length() - 1


@triton.constexpr_function
def sign_word(which, index):
    """32 signs as the bits of an int32; a set bit is -1."""
    return SIGN_WORDS[which][index]
