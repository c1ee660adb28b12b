"""How kernels store a head of keys or values: the codes of the package `kv`, to the bit.

All arithmetic is in float32, rounded as numpy does: divisions and roots by the exact instructions,
sums in the order of the codecs.
"""

from __future__ import annotations

import triton
import triton.language as tl

from turbodflash_kernels._gpu.constants import (
    has_norm,
    is_plain,
    layout,
    per_head,
    scales,
    shape,
)
from turbodflash_kernels._gpu.hadamard import log2
from turbodflash_kernels._gpu.levels import level, middle, middles
from turbodflash_kernels._gpu.pairs import DOUBLED, paired_codes


@triton.jit
def store_heads(codes, beside, factors, pairs, slots, inside, x,
                ROWS: tl.constexpr, N: tl.constexpr,
                KIND: tl.constexpr, DIM: tl.constexpr, HALF: tl.constexpr):  # fmt: skip
    """One head of each row, x float32 [ROWS, N], N a power of two, of which DIM are stored.

    Into slots [ROWS], of rows that are inside; pointers as after `of_head`. HALF: the last of the
    stored blocks is one that the head fills half; pairs: the table of its codes.
    """
    if is_plain(KIND):
        to, stored = _places(codes, slots, inside, N, DIM)
        tl.store(to, _rounded(x, KIND), mask=stored)
    elif has_norm(KIND):
        blocks = tl.reshape(x, [ROWS * N // 128, 128])
        code, norm = _turbo(blocks, pairs, N // 128, DIM // 128, KIND, HALF)
        to, stored = _places(factors, slots, inside, N // 128, scales(KIND, DIM))
        tl.store(to, tl.reshape(norm.to(tl.float16), [ROWS, N // 128]), mask=stored)
        _store_codes(codes, beside, slots, inside, code, ROWS, N, KIND, DIM)
    else:
        code, scale, low = _blocks(tl.reshape(x, [ROWS * N // 32, 32]), KIND)
        if layout(KIND, "factors") == 2:
            scale = tl.reshape(tl.join(scale, low), [ROWS, N // 16])
            to, stored = _places(factors, slots, inside, N // 16, scales(KIND, DIM))
        else:
            scale = tl.reshape(scale, [ROWS, N // 32])
            to, stored = _places(factors, slots, inside, N // 32, scales(KIND, DIM))
        tl.store(to, scale.to(tl.float16), mask=stored)
        _store_codes(codes, beside, slots, inside, code, ROWS, N, KIND, DIM)


@triton.jit
def _places(memory, slots, inside, N: tl.constexpr, PER_HEAD: tl.constexpr):
    """Where N elements of each row lie, [rows, N], and which of them there are."""
    element = tl.arange(0, N)[None, :]
    at = memory + slots.to(tl.int64)[:, None] * PER_HEAD + element
    return at, inside[:, None] & (element < PER_HEAD)


@triton.jit
def _rounded(x, KIND: tl.constexpr):
    if KIND == "f16":
        x = x.to(tl.float16)
    elif KIND == "bf16":
        bits = x.to(tl.int32, bitcast=True)
        even = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
        x = tl.where(x != x, (bits >> 16) | 0x40, even).to(tl.int16)
    return x


# -- blocks of 32 ----------------------------------------------------------------------------------


@triton.jit
def _blocks(x, KIND: tl.constexpr):
    """x [blocks, 32] -> codes int32, and scales and minima float32 [blocks]."""
    low = tl.zeros([x.shape[0]], tl.float32)
    if KIND == "q8_0":
        scale = tl.div_rn(tl.max(tl.abs(x), 1), 127.0)
        code = _rounded_away(x * _reciprocal(scale)[:, None]) + 128
    elif KIND == "q4_0":
        scale = tl.div_rn(_extreme(x), -8.0)
        code = _whole(x * _reciprocal(scale)[:, None] + 8.5, 15)
    elif KIND == "q5_0":
        scale = tl.div_rn(_extreme(x), -16.0)
        code = _whole(x * _reciprocal(scale)[:, None] + 16.5, 31)
    elif KIND == "iq4_nl":
        code, scale = _iq4(x)
    else:
        MOST: tl.constexpr = 15 if KIND == "q4_1" else 31
        low = tl.min(x, 1)
        scale = tl.div_rn(tl.max(x, 1) - low, MOST * 1.0)
        code = _whole((x - low[:, None]) * _reciprocal(scale)[:, None] + 0.5, MOST)
    return code, scale, low


@triton.jit
def _reciprocal(scale):
    return tl.where(scale == 0, 0.0, tl.div_rn(1.0, tl.where(scale == 0, 1.0, scale)))


@triton.jit
def _extreme(x):
    """The number of each block that is largest without its sign, the first of equals; not -0."""
    lane = tl.arange(0, 32)[None, :]
    size = tl.abs(x)
    first = tl.min(tl.where(size == tl.max(size, 1)[:, None], lane, 32), 1)
    return tl.sum(tl.where(lane == first[:, None], x, 0.0), 1) + 0.0


@triton.jit
def _whole(x, MOST: tl.constexpr):
    """x without its fraction, held between 0 and MOST; 0 for NaN."""
    return tl.where(x == x, tl.clamp(x, 0.0, MOST * 1.0), 0.0).to(tl.int32)


@triton.jit
def _rounded_away(x):
    """The nearest whole number of -127 to 127; halves go away from zero; 0 for NaN."""
    x = tl.where(x == x, tl.clamp(x, -127.0, 127.0), 0.0)
    whole = x.to(tl.int32)
    away = tl.abs(x - whole.to(tl.float32)) >= 0.5
    return whole + tl.where(away, tl.where(x < 0, -1, 1), 0)


@triton.jit
def _iq4(x):
    """Codes by a first scale; then the scale that leaves the least error."""
    scaled = x * _reciprocal(tl.div_rn(_extreme(x), -127.0))[:, None]
    code = _count_of_middles(scaled, "iq4_nl")
    held = _level_of(code, "iq4_nl")
    weighted = x * x * held
    products, squares = _in_order(weighted * x), _in_order(weighted * held)
    scale = tl.div_rn(products, tl.where(squares > 0, squares, 1.0))
    return code, tl.where(squares > 0, scale, 0.0)


@triton.jit
def _in_order(x):
    """The sum of each block, number after number."""
    lane, total = tl.arange(0, 32)[None, :], tl.zeros([x.shape[0]], tl.float32)
    for i in tl.static_range(32):
        total += tl.sum(tl.where(lane == i, x, 0.0), 1)
    return total


# -- levels ----------------------------------------------------------------------------------------


@triton.jit
def _turbo(x, pairs, EACH: tl.constexpr, BLOCKS: tl.constexpr, KIND: tl.constexpr,
           HALF: tl.constexpr):  # fmt: skip
    """x [groups, 128], EACH a head -> codes int32, and norms float32 [groups].

    HALF: of the BLOCKS of a head that are stored, the last is filled half.
    """
    length = tl.sqrt_rn(_by_halves(x * x, 128))
    long = length > 1e-10
    divisor = tl.where(long, length, 1.0)
    if HALF:
        factor = tl.where(long, tl.div_rn(DOUBLED, divisor), 0.0)
        code, sums = paired_codes(x, factor, pairs, KIND)
        found = tl.where(long, tl.sqrt_rn(0.5 * _by_halves(sums * sums, 64)), 1.0)
        if BLOCKS > 1:
            paired = tl.arange(0, x.shape[0]) % EACH == BLOCKS - 1
            others, found_of_others = _singles(x, long, divisor, KIND)
            code = tl.where(paired[:, None], code, others)
            found = tl.where(paired, found, found_of_others)
    else:
        code, found = _singles(x, long, divisor, KIND)
    return code, tl.minimum(tl.div_rn(length, found), 65504.0)


@triton.jit
def _singles(x, long, divisor, KIND: tl.constexpr):
    """Codes of full blocks, and the lengths that their levels have."""
    factor = tl.where(long, tl.div_rn(1.0, divisor), 0.0)
    code = _count_of_middles(x * factor[:, None], KIND)
    held = _level_of(code, KIND)
    return code, tl.sqrt_rn(_by_halves(held * held, 128))


@triton.jit
def _by_halves(x, N: tl.constexpr):
    """Sums of x [n, N]: halves are added until one number is left."""
    for i in tl.static_range(log2(N)):
        x = tl.sum(tl.reshape(x, [x.shape[0], 2, N >> (i + 1)]), 1)
    return tl.reshape(x, [x.shape[0]])


@triton.jit
def _count_of_middles(x, KIND: tl.constexpr):
    """How many middles between levels are not above x: the code of the nearest level."""
    code = tl.zeros(x.shape, tl.int32)
    for i in tl.static_range(middles(KIND)):
        code += tl.where(x >= middle(KIND, i), 1, 0)
    return code


@triton.jit
def _level_of(code, KIND: tl.constexpr):
    found = tl.zeros(code.shape, tl.float32)
    for i in tl.static_range(middles(KIND) + 1):
        found = tl.where(code == i, level(KIND, i), found)
    return found


# -- words -----------------------------------------------------------------------------------------


@triton.jit
def _store_codes(codes, beside, slots, inside, code, ROWS: tl.constexpr, N: tl.constexpr,
                 KIND: tl.constexpr, DIM: tl.constexpr):  # fmt: skip
    """Put codes of ROWS heads of N numbers into words, as `codes.fields_of` says."""
    BITS: tl.constexpr = layout(KIND, "bits")
    BESIDE: tl.constexpr = layout(KIND, "beside")
    PLANES: tl.constexpr = shape(KIND, DIM, "planes")
    SUB: tl.constexpr = shape(KIND, DIM, "sub")
    WORDS: tl.constexpr = N * BITS // 32
    number = tl.arange(0, N)[None, :]
    half, plane = number // SUB % 2, number // 32 % PLANES
    field = plane * SUB + number % SUB
    shift = BITS * field + 16 * half
    if has_norm(KIND):
        shift = 4 * (2 * plane + half) + 2 * (number % SUB)
    code = tl.reshape(code, [ROWS, N])
    low, top = code, code >> BITS
    if layout(KIND, "signed"):
        LEVELS: tl.constexpr = 8 if KIND == "turbo4" else 4
        negative = code < LEVELS
        low, top = tl.where(negative, LEVELS - 1 - code, code - LEVELS), negative.to(tl.int32)
    bits = (low & ((1 << BITS) - 1)) << shift
    if KIND == "turbo4":
        bits = bits | top << (4 * plane + 3 + 16 * half)
    to, stored = _places(codes, slots, inside, WORDS, per_head(KIND, DIM))
    tl.store(to, _gathered(bits, ROWS, WORDS, PLANES, SUB), mask=stored)
    if BESIDE != 0:
        to, stored = _places(beside, slots, inside, WORDS, per_head(KIND, DIM))
        if BESIDE == 8:
            bits = _gathered(top << (field + 4 * half), ROWS, WORDS, PLANES, SUB)
            tl.store(to, bits.to(tl.int8), mask=stored)
        else:
            bits = _gathered(top << (7 - field + 8 * half), ROWS, WORDS, PLANES, SUB)
            tl.store(to, bits.to(tl.int16), mask=stored)


@triton.jit
def _gathered(bits, ROWS: tl.constexpr, WORDS: tl.constexpr, PLANES: tl.constexpr,
              SUB: tl.constexpr):  # fmt: skip
    """Bits [ROWS, N] of different fields, put together: words [ROWS, WORDS]."""
    OF_CHUNK: tl.constexpr = 16 // SUB
    apart = tl.reshape(bits, [ROWS * WORDS // OF_CHUNK, PLANES, OF_CHUNK, 2 * SUB])
    return tl.reshape(tl.sum(tl.sum(apart, 3), 1), [ROWS, WORDS])
