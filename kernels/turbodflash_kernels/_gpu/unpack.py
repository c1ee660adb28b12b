"""Quantised weights back from their words, inside a kernel (see layout.py for how they lie).

A code becomes a float without a conversion: it is put into the mantissa of a power of two, whose
value is then taken off. Both halves of a word go through this at once. What has no name in Triton
is written in PTX; PTX=False gives the same numbers in plain expressions, for the interpreter.

Parameters of a format, all constants: BITS, BLOCK, ZERO, AFFINE as in `planar.Format`; TABLE, its
sixteen values plus 128 as bytes of four words, or ().
"""

from __future__ import annotations

import triton
import triton.language as tl

PLANE = tl.constexpr(32)  # inputs of a plane
WORDS = tl.constexpr(16)  # words of a row in a sub-tile


@triton.jit
def decoded(
    words,
    high,
    scales,
    U: tl.constexpr,
    P: tl.constexpr,
    AT: tl.constexpr,
    BITS: tl.constexpr,
    BLOCK: tl.constexpr,
    ZERO: tl.constexpr,
    AFFINE: tl.constexpr,
    TABLE: tl.constexpr,
    PTX: tl.constexpr,
):
    """Plane P of sub-tile U of 256 inputs: f16 [rows, 32], in units of the rows.

    words: int32 [rows, 16]. high: int16 [rows, 16], or int32 where BITS is 6; of 256 inputs.
    scales: int32 [rows, up to 4], a piece of the scales, of which the plane's are number AT.
    """
    BASE: tl.constexpr = 8 if BITS == 8 else (2 if BITS < 4 else 4)
    SHIFT: tl.constexpr = 0 if len(TABLE) else P * BASE % 8
    MAGIC: tl.constexpr = ((25 - SHIFT) << 10) * 0x10001
    if len(TABLE):
        code = looked_up(words, P, TABLE, PTX) | MAGIC
        OFFSET: tl.constexpr = 1024 + 128 + ZERO
    else:
        MASK: tl.constexpr = (((1 << BASE) - 1) << SHIFT) * 0x10001
        low = words >> (P * BASE // 8 * 8)
        if BITS == BASE:
            code = (low & MASK) | MAGIC
        else:
            # right above the base; compilers would take the three parts together in three steps
            ABOVE: tl.constexpr = (((1 << (BITS - BASE)) - 1) << (SHIFT + BASE)) * 0x10001
            above = _moved(high, U * (16 // BASE) + P, BITS, BASE)
            if PTX:
                code = tl.inline_asm_elementwise(
                    f"""{{
                    .reg .b32 low;
                    lop3.b32 low, $1, {MASK}, {MAGIC}, 0xEA;
                    lop3.b32 $0, $2, {ABOVE}, low, 0xEA;
                    }}""",
                    "=r,r,r",
                    [low, above],
                    dtype=tl.int32,
                    is_pure=True,
                    pack=1,
                )
            else:
                code = (low & MASK) | MAGIC | (above & ABOVE)
        OFFSET: tl.constexpr = (1 << (10 - SHIFT)) + ZERO
    scale = _spread(scales, AT, BLOCK, AFFINE, 0)
    if AFFINE:
        return _scaled_and_shifted(
            _halves(code), OFFSET, scale, _spread(scales, AT, BLOCK, 1, 1), PTX
        )
    return _scaled(_halves(code), OFFSET, scale, PTX)


@triton.jit
def _moved(high, P: tl.constexpr, BITS: tl.constexpr, BASE: tl.constexpr):
    """High bits, those of plane P where they belong; see `layout.high_place`."""
    GROUP: tl.constexpr = P * BASE // 8  # of planes that are moved together
    if BITS == 6:
        LEFT: tl.constexpr = 4 - 2 * (GROUP % 2) - 8 * (GROUP // 2)
        both = high
    else:
        LEFT: tl.constexpr = BASE - GROUP
        both = high.to(tl.int32) & 0xFFFF
        both = both | (both << 8)
    return both >> -LEFT if LEFT < 0 else both << LEFT


@triton.jit
def looked_up(words, P: tl.constexpr, TABLE: tl.constexpr, PTX: tl.constexpr):
    """Table values plus 128 of the codes of plane P, in both halves of a word."""
    if PTX:
        return _looked_up_by_ptx(words, P, TABLE)
    low = _byte_of((words >> (4 * P)) & 15, TABLE)
    return low | (_byte_of((words >> (16 + 4 * P)) & 15, TABLE) << 16)


@triton.jit
def _byte_of(code, TABLE: tl.constexpr):
    first = tl.where(code < 4, TABLE[0], TABLE[1])
    word = tl.where(code < 8, first, tl.where(code < 12, TABLE[2], TABLE[3]))
    return (word >> (8 * (code & 3))) & 0xFF


@triton.jit
def _looked_up_by_ptx(words, P: tl.constexpr, TABLE: tl.constexpr):
    """prmt looks four codes up at once in eight bytes: twice for sixteen, once more to choose."""
    T0: tl.constexpr = TABLE[0]
    T1: tl.constexpr = TABLE[1]
    T2: tl.constexpr = TABLE[2]
    T3: tl.constexpr = TABLE[3]
    a, b, c, d = tl.inline_asm_elementwise(
        f"""{{
        .reg .b32 q, m, x, y, low, high;
        and.b32 q, $4, 0x77777777;
        shr.u32 m, $4, 1;
        and.b32 m, m, 0x44444444;
        or.b32 m, m, 0x32103210;
        prmt.b32 x, {T0}, {T1}, q;
        prmt.b32 y, {T2}, {T3}, q;
        prmt.b32 low, x, y, m;
        shr.u32 q, q, 16;
        shr.u32 m, m, 16;
        prmt.b32 x, {T0}, {T1}, q;
        prmt.b32 y, {T2}, {T3}, q;
        prmt.b32 high, x, y, m;
        prmt.b32 $0, low, high, 0x0400;
        prmt.b32 $1, low, high, 0x0501;
        prmt.b32 $2, low, high, 0x0602;
        prmt.b32 $3, low, high, 0x0703;
        and.b32 $0, $0, 0x00FF00FF;
        and.b32 $1, $1, 0x00FF00FF;
        and.b32 $2, $2, 0x00FF00FF;
        and.b32 $3, $3, 0x00FF00FF;
        }}""",
        "=&r,=&r,=&r,=&r,r",
        [words],
        dtype=(tl.int32, tl.int32, tl.int32, tl.int32),
        is_pure=True,
        pack=1,
    )
    return a if P == 0 else (b if P == 1 else (c if P == 2 else d))


@triton.jit
def _spread(scales, AT: tl.constexpr, BLOCK: tl.constexpr, AFFINE: tl.constexpr, MIN: tl.constexpr):
    """The scales (or minima) of the piece's plane AT, f16 [rows, 32]."""
    ROWS: tl.constexpr = scales.shape[0]
    if BLOCK == 32:
        # a word is a scale and a minimum, or the scales of two planes
        each = (
            _half(_column(scales, AT), MIN) if AFFINE else _half(_column(scales, AT // 2), AT % 2)
        )
        return tl.broadcast_to(each[:, None], (ROWS, PLANE))
    else:
        if AFFINE:
            first = _half(_column(scales, 2 * AT), MIN)
            second = _half(_column(scales, 2 * AT + 1), MIN)
        else:
            first = _half(_column(scales, AT), 0)
            second = _half(_column(scales, AT), 1)
        pair = tl.join(first, second)
        return tl.reshape(tl.broadcast_to(pair[:, :, None], (ROWS, 2, PLANE // 2)), (ROWS, PLANE))


@triton.jit
def _column(tile, INDEX: tl.constexpr):
    """Column INDEX of a tile [rows, a power of two], as [rows]."""
    if tile.shape[1] == 1:
        return tl.reshape(tile, (tile.shape[0],))
    else:
        even, odd = tl.split(tl.reshape(tile, (tile.shape[0], tile.shape[1] // 2, 2)))
        return _column(odd if INDEX % 2 else even, INDEX // 2)


@triton.jit
def _half(word, UPPER: tl.constexpr):
    bits = (word >> 16) if UPPER else (word & 0xFFFF)
    return bits.to(tl.int16).to(tl.float16, bitcast=True)


@triton.jit
def _halves(words):
    """int32 [rows, n] -> f16 [rows, 2n]: the lower half of a word comes first."""
    pairs = tl.join(_half(words, 0), _half(words, 1))
    return tl.reshape(pairs, (words.shape[0], 2 * words.shape[1]))


@triton.jit
def _scaled(value, OFFSET: tl.constexpr, scale, PTX: tl.constexpr):
    """(value - OFFSET) * scale; the difference is exact."""
    if PTX:
        return tl.inline_asm_elementwise(
            """{
            .reg .b32 code;
            sub.rn.f16x2 code, $1, $3;
            mul.rn.f16x2 $0, code, $2;
            }""",
            "=r,r,r,r",
            [value, scale, tl.full(value.shape, OFFSET, tl.float16)],
            dtype=tl.float16,
            is_pure=True,
            pack=2,
        )
    return (value - OFFSET) * scale


@triton.jit
def _scaled_and_shifted(value, OFFSET: tl.constexpr, scale, minimum, PTX: tl.constexpr):
    """(value - OFFSET) * scale + minimum, rounded once."""
    if PTX:
        return tl.inline_asm_elementwise(
            """{
            .reg .b32 code;
            sub.rn.f16x2 code, $1, $4;
            fma.rn.f16x2 $0, code, $2, $3;
            }""",
            "=r,r,r,r,r",
            [value, scale, minimum, tl.full(value.shape, OFFSET, tl.float16)],
            dtype=tl.float16,
            is_pure=True,
            pack=2,
        )
    code = (value - OFFSET).to(tl.float32)
    return (code * scale.to(tl.float32) + minimum.to(tl.float32)).to(tl.float16)
