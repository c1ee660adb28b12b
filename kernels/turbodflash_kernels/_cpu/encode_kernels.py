"""Heads as rows of bytes, for every type: bit for bit what the type's codec writes.

encode(x, blocks, row, work): x f32 [blocks * numbers], row the bytes of as many blocks, work
WORK bytes. `blocks` counts blocks of the type, which are single numbers of a type without, or half
blocks of a turbo type. NaN and infinity spoil the block that they are in, and no other.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

from turbodflash_kernels._cpu.codecs import PLAIN, Codes, codes_of, levels_of, middles_of
from turbodflash_kernels._cpu.encode_steps import (
    level_codes,
    levels,
    pack_bits,
    pack_nibbles,
    pack_pairs,
    pack_quarters,
    pair_codes,
    rounded_codes,
    truncated_codes,
    twin_codes,
    vabs,
    vmin_of,
    vstore_bf16,
)
from turbodflash_kernels._cpu.gather_kernels import copy_bytes
from turbodflash_kernels._cpu.simd import (
    load_f32,
    store_f16,
    vfind,
    vload,
    vload_partial,
    vmax,
    vmax_of,
    vsplat,
    vstore,
    vstore_f16,
    vsum,
)
from turbodflash_kernels.kv._pairs import LENGTH

inline = numba.njit(error_model="numpy")
WORK = 384  # bytes that an encoder may use
SUMS = 128  # in there: 64 float32
HALF = np.float32(0.5)
ZERO, ONE, TWO = np.float32(0), np.float32(1), np.float32(2)
DOUBLED = 2 * LENGTH  # of half a block: numbers are compared with sums of two levels
F16_MOST = np.float32(65504.0)
SHORTEST = np.float32(1e-10)  # a vector that is not longer has no direction


def build(name: str, type: str, isa: str) -> Any:
    if type in PLAIN:
        return plain(type)
    if type == "q8_0":
        return bytes_
    if type.startswith("turbo"):
        return turbo(type, isa)
    codes = codes_of(type)
    if type == "iq4_nl":
        return levelled(type, isa)
    return ranged(codes) if codes.minimum else signed(codes)


def plain(type: str) -> Any:
    size = 4 if type == "f32" else 2

    @inline
    def store(numbers, to):
        if type == "f32":
            vstore(to, numbers)
        elif type == "f16":
            vstore_f16(to, numbers)
        else:
            vstore_bf16(to, numbers)

    def kernel(x, count, row, work):
        whole = count // 16 * 16
        for i in range(0, whole, 16):
            store(vload(x + 4 * i), row + size * i)
        if whole < count:
            store(vload_partial(x + 4 * whole, count - whole), work)
            copy_bytes(work, size * (count - whole), row + size * whole)

    return kernel


@inline
def reciprocal(scale):
    return ONE / scale if scale != ZERO else ZERO


@inline
def largest(a, b):
    """The largest size of 32 numbers."""
    return vmax_of(vmax(vabs(a), vabs(b)))


@inline
def poison(a, b):
    """0, or NaN if one of 32 numbers is not finite."""
    return vsum(a * vsplat(ZERO)) + vsum(b * vsplat(ZERO))


@inline
def extreme(a, b, size):
    """The number that is of that size, the first of several."""
    lane = vfind(vabs(a), size)
    return lane if lane < 16 else 16 + vfind(vabs(b), size)


def bytes_(x, blocks, row, work):
    for block in range(blocks):
        at, to = x + 128 * block, row + 34 * block
        a, b = vload(at), vload(at + 64)
        scale = largest(a, b) / np.float32(127) + poison(a, b)
        factor = vsplat(reciprocal(scale))
        store_f16(to, scale)
        rounded_codes(a * factor, to + 2)
        rounded_codes(b * factor, to + 18)


def signed(codes: Codes) -> Any:
    """The number of the largest size becomes code 0."""
    zero, wide = codes.zero, codes.high > 0
    most, size = 2 * zero - 1, codes.block_bytes
    lowest, middle = np.float32(-zero), np.float32(zero + 0.5)

    def kernel(x, blocks, row, work):
        for block in range(blocks):
            at, to = x + 128 * block, row + size * block
            a, b = vload(at), vload(at + 64)
            lane = extreme(a, b, largest(a, b))
            number = load_f32(at + 4 * min(lane, 31)) + ZERO
            bad = poison(a, b)
            scale = number / lowest if bad == ZERO else bad
            factor = vsplat(reciprocal(scale))
            truncated_codes(a * factor + vsplat(middle), most, work)
            truncated_codes(b * factor + vsplat(middle), most, work + 16)
            store_f16(to, scale)
            if wide:
                pack_bits(work, 4, to + 2)
            pack_nibbles(work, to + (6 if wide else 2))

    return kernel


def ranged(codes: Codes) -> Any:
    """The smallest number becomes code 0, the largest the last code."""
    wide = codes.high > 0
    most, size = (31 if wide else 15), codes.block_bytes
    steps = np.float32(most)

    def kernel(x, blocks, row, work):
        for block in range(blocks):
            at, to = x + 128 * block, row + size * block
            a, b = vload(at), vload(at + 64)
            low = vmin_of(a, b)
            scale = (vmax_of(vmax(a, b)) - low) / steps + poison(a, b)
            factor = vsplat(reciprocal(scale))
            truncated_codes((a - vsplat(low)) * factor + vsplat(HALF), most, work)
            truncated_codes((b - vsplat(low)) * factor + vsplat(HALF), most, work + 16)
            store_f16(to, scale)
            store_f16(to + 2, low)
            if wide:
                pack_bits(work, 4, to + 4)
            pack_nibbles(work, to + (8 if wide else 4))

    return kernel


def levelled(type: str, isa: str) -> Any:
    """Codes by a first scale; then the scale that leaves the least error, large numbers first."""
    to_codes, level = level_codes(middles_of(type)), levels(levels_of(type), isa)
    steps = np.float32(levels_of(type)[0])

    def kernel(x, blocks, row, work):
        for block in range(blocks):
            at, to = x + 128 * block, row + 18 * block
            a, b = vload(at), vload(at + 64)
            lane = extreme(a, b, largest(a, b))
            first = (load_f32(at + 4 * min(lane, 31)) + ZERO) / steps
            factor = vsplat(reciprocal(first))
            to_codes(a * factor, work)
            to_codes(b * factor, work + 16)
            pack_nibbles(work, to + 2)
            products = squares = ZERO
            for half in range(2):
                numbers, found = vload(at + 64 * half), level(work + 16 * half)
                weighted = numbers * numbers * found
                vstore(work + 32, weighted * numbers)
                vstore(work + 96, weighted * found)
                for i in range(16):
                    products += load_f32(work + 32 + 4 * i)
                    squares += load_f32(work + 96 + 4 * i)
            scale = products / squares if squares > ZERO else poison(a, b)
            store_f16(to, scale)

    return kernel


def turbo(type: str, isa: str) -> Any:
    """Told how many halves of blocks there are; an odd one is half a block, of pairs of codes."""
    to_codes, level = level_codes(middles_of(type)), levels(levels_of(type), isa)
    to_pairs, flip = pair_codes(type), twin_codes(len(levels_of(type)) - 1)
    size = codes_of(type).block_bytes
    pack = {"turbo2": _pack_2, "turbo3": _pack_3, "turbo4": _pack_4}[type]

    @inline
    def squares(x):
        """The sum of 64 squares: halves are added until one number is left."""
        a, b, c, d = vload(x), vload(x + 64), vload(x + 128), vload(x + 192)
        return vsum((a * a + c * c) + (b * b + d * d))

    @inline
    def squared(numbers):
        return numbers * numbers

    @inline
    def joined(a, b, c, d, e, f, g, h):
        """The sum of 128 numbers: halves are added until one number is left."""
        return vsum(((a + e) + (c + g)) + ((b + f) + (d + h)))

    @inline
    def whole(at, to, work):
        length = np.float32(
            math.sqrt(
                joined(
                    squared(vload(at)),
                    squared(vload(at + 64)),
                    squared(vload(at + 128)),
                    squared(vload(at + 192)),
                    squared(vload(at + 256)),
                    squared(vload(at + 320)),
                    squared(vload(at + 384)),
                    squared(vload(at + 448)),
                )
            )
        )
        factor = vsplat(ONE / length if length > SHORTEST else ZERO)
        for i in range(8):
            to_codes(vload(at + 64 * i) * factor, work + 16 * i)
        found = np.float32(
            math.sqrt(
                joined(
                    squared(level(work)),
                    squared(level(work + 16)),
                    squared(level(work + 32)),
                    squared(level(work + 48)),
                    squared(level(work + 64)),
                    squared(level(work + 80)),
                    squared(level(work + 96)),
                    squared(level(work + 112)),
                )
            )
        )
        norm = length / found
        store_f16(to, F16_MOST if norm > F16_MOST else norm)
        pack(work, to + 2)

    @inline
    def half(at, to, work):
        """Of the first 64 numbers of a rotated block, which the others repeat."""
        length = np.float32(math.sqrt(TWO * squares(at)))
        long = length > SHORTEST
        factor = vsplat(DOUBLED / length if long else ZERO)
        for i in range(0, 64, 16):
            to_pairs(vload(at + 4 * i) * factor, work + i, work + 64 + i)
            vstore(work + SUMS + 4 * i, level(work + i) + level(work + 64 + i))
        found = np.float32(math.sqrt(HALF * squares(work + SUMS)))
        norm = length / found if long else length
        store_f16(to, F16_MOST if norm > F16_MOST else norm)
        flip(work + 64)
        pack(work, to + 2)

    def kernel(x, halves, row, work):
        blocks = halves // 2
        for block in range(blocks):
            whole(x + 512 * block, row + size * block, work)
        if halves % 2 != 0:
            half(x + 512 * blocks, row + size * blocks, work)

    return kernel


@inline
def _pack_4(codes, to):
    for i in range(4):
        pack_pairs(codes + 32 * i, to + 16 * i)


@inline
def _pack_2(codes, to):
    for i in range(2):
        pack_quarters(codes + 64 * i, to + 16 * i)


@inline
def _pack_3(codes, to):
    _pack_2(codes, to)
    for i in range(4):
        pack_bits(codes + 32 * i, 2, to + 32 + 4 * i)
