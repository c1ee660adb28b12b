"""Blocks of the turbo types as float32: 128 rotated numbers, or half of them, folded.

A head that fills only half a block has zeros behind it. Such a block is turned into two halves that
are equal but for their signs, which are the rotation's own: number 64 + i is number i, or its
negative. The same is true of a query. So both halves of a product are equal, and a half block is
decoded as the sum of its halves, signs put right: the products of such sums with the first half of
a query are the products of whole blocks, whatever the codes are. Codes are symmetric, so what is
negative has all bits of its code flipped: the words of the second half are flipped, then they are
looked up like those of the first.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir

from turbodflash_kernels._cpu.codecs import Codes
from turbodflash_kernels._cpu.emit import (
    F16,
    I16,
    I32,
    I64,
    LANES,
    V_F32,
    V_I32,
    Builder,
    Values,
    constant_splat,
    load,
    offset,
    plus,
    repeat,
    splat,
    store,
)
from turbodflash_kernels._cpu.tables import (
    UNIT,
    either,
    look_up,
    nibbles_of_rows,
    nibbles_of_tiles,
    sums_of_rows,
    sums_of_tiles,
)
from turbodflash_kernels.kv._rotation import SIGNS_AFTER, TURBO_BLOCK

HALF = TURBO_BLOCK // 2
GROUP = 32  # elements of a row that are decoded together
VECTOR_BYTES = 4 * LANES


def blocks(
    builder: Builder,
    isa: str,
    codes: Codes,
    at: ir.Value,
    halves: ir.Value,
    to: ir.Value,
    tile: bool,
) -> None:
    """All blocks of a row, or of a tile of keys; an odd half is a block that is folded."""
    lanes = LANES if tile else 1
    emit = _tile if tile else _row
    whole = builder.lshr(halves, I64(1))
    with builder.if_then(builder.icmp_signed(">", whole, I64(0))):
        repeat(
            builder,
            whole,
            lambda i: emit(
                builder,
                isa,
                codes,
                offset(builder, at, i, codes.block_bytes * lanes),
                offset(builder, to, i, 4 * TURBO_BLOCK * lanes),
                False,
            ),
        )
    with builder.if_then(builder.trunc(halves, ir.IntType(1))):
        last = offset(builder, at, whole, codes.block_bytes * lanes)
        emit(builder, isa, codes, last, offset(builder, to, whole, 4 * TURBO_BLOCK * lanes), True)


def flips(codes: Codes, word: int, bits: int) -> int:
    """Which bits of a word of the second half are to be flipped so that it repeats the first.

    word: counted from the second half's beginning; bits: of a code in it.
    """
    each, mask = 32 // bits, 0
    for place in range(each):
        element = word * each + place
        if SIGNS_AFTER[element] != SIGNS_AFTER[HALF + element]:
            mask |= ((1 << bits) - 1) << (bits * place)
    return int(np.uint32(mask).view(np.int32))


# -- tiles: lanes are keys -----------------------------------------------------------------------


def _tile(
    builder: Builder, isa: str, codes: Codes, at: ir.Value, to: ir.Value, folded: bool
) -> None:
    norms = builder.fpext(load(builder, at, ir.VectorType(F16, LANES)), V_F32)

    def word(index: int, start: int | None = None, bits: int = 0) -> ir.Value:
        """One of the second half, which begins with word `start`, as its twin should be."""
        found = load(builder, plus(builder, at, 2 * LANES + VECTOR_BYTES * index), V_I32)
        if start is None:
            return found
        return builder.xor(found, constant_splat(flips(codes, index - start, bits), V_I32))

    def put(index: int, numbers: Values, factors: ir.Value) -> None:
        for place, number in enumerate(numbers):
            element = plus(builder, to, VECTOR_BYTES * codes.at(index, place))
            store(builder, builder.fmul(number, factors), element)

    def numbers(index: int, second: bool = False) -> Values:
        element = codes.at(index, 0)
        first, first_high = (
            (codes.words // 2, codes.words + codes.high // 2) if second else 2 * (None,)
        )
        low = word(index, first, codes.bits)
        high = word(codes.words + element // 32, first_high, 1) if codes.high else None
        return _lanes_of_tile(builder, isa, codes, low, high, element % 32)

    if not folded:
        for index in range(codes.words):
            put(index, numbers(index), norms)
        return
    half = codes.words // 2
    if _by_digits(isa, codes):
        norms = builder.fmul(norms, constant_splat(UNIT, V_F32))
        for index in range(half):
            put(
                index,
                sums_of_tiles(builder, codes.table, word(index), word(half + index, half, 4)),
                norms,
            )
        return
    for index in range(half):
        both = numbers(index), numbers(half + index, True)
        put(index, [builder.fadd(a, b) for a, b in zip(*both, strict=True)], norms)


def _lanes_of_tile(
    builder: Builder,
    isa: str,
    codes: Codes,
    low: ir.Value,
    high: ir.Value | None,
    first: int,
) -> Values:
    """What the codes of a word stand for, place after place. first: the first one's bit in high."""
    if codes.bits == 4 and isa != "generic":
        return nibbles_of_tiles(builder, codes.table, low)
    found = []
    for place in range(32 // codes.bits):
        code = builder.lshr(low, constant_splat(codes.bits * place, V_I32))
        if high is None:
            found.append(look_up(builder, isa, codes.table, code))
        else:
            top = builder.shl(high, constant_splat(31 - first - place, V_I32))
            found.append(either(builder, isa, codes.table, code, top))
    return found


# -- rows: lanes are elements --------------------------------------------------------------------


def _row(
    builder: Builder, isa: str, codes: Codes, at: ir.Value, to: ir.Value, folded: bool
) -> None:
    # spread before it is widened, or it would wait for what the register held before
    eight = builder.bitcast(splat(builder, load(builder, at, I16), 8), ir.VectorType(F16, 8))
    wide = builder.fpext(eight, ir.VectorType(V_F32.element, 8))
    norm = builder.shuffle_vector(wide, wide, ir.Constant(V_I32, list(range(LANES))))

    def words(first: int, count: int) -> ir.Value:
        kind = ir.VectorType(I32, count)
        return load(builder, plus(builder, at, 2 + 4 * first), kind)

    def flipped(first: int, count: int, start: int, bits: int) -> ir.Value:
        """Words of the second half, which begins with word `start`, as their twins should be."""
        masks = [flips(codes, word - start, bits) for word in range(first, first + count)]
        return builder.xor(words(first, count), ir.Constant(ir.VectorType(I32, count), masks))

    def group(index: int, second: bool = False) -> Values:
        """Two vectors: elements 32 * index and on."""
        count = GROUP * codes.bits // 32
        low_at, high_at = index * count, codes.words + index
        if second:
            low = flipped(low_at, count, codes.words // 2, codes.bits)
            start = codes.words + codes.high // 2
            high = flipped(high_at, 1, start, 1) if codes.high else None
        else:
            low, high = words(low_at, count), words(high_at, 1) if codes.high else None
        return _lanes_of_row(builder, isa, codes, low, high)

    def put(index: int, numbers: Values, factors: ir.Value) -> None:
        for i, number in enumerate(numbers):
            place = plus(builder, to, 4 * (GROUP * index + LANES * i))
            store(builder, builder.fmul(number, factors), place)

    groups = HALF // GROUP
    if not folded:
        for index in range(2 * groups):
            put(index, group(index), norm)
        return
    half = codes.words // 2
    if _by_digits(isa, codes):
        norm = builder.fmul(norm, constant_splat(UNIT, V_F32))
        for index in range(groups):
            pair = words(4 * index, 4), flipped(half + 4 * index, 4, half, 4)
            put(index, sums_of_rows(builder, codes.table, *pair), norm)
        return
    for index in range(groups):
        both = group(index), group(groups + index, True)
        put(index, [builder.fadd(a, b) for a, b in zip(*both, strict=True)], norm)


def _lanes_of_row(
    builder: Builder,
    isa: str,
    codes: Codes,
    low: ir.Value,
    high: ir.Value | None,
) -> Values:
    """What 32 codes stand for, as two vectors."""
    if codes.bits == 4 and isa != "generic":
        return nibbles_of_rows(builder, codes.table, low)
    each, found = 32 // codes.bits, []
    for half in range(2):
        lanes = range(LANES * half, LANES * (half + 1))
        spread = ir.Constant(V_I32, [lane // each for lane in lanes])
        shifts = ir.Constant(V_I32, [lane % each * codes.bits for lane in lanes])
        code = builder.lshr(builder.shuffle_vector(low, low, spread), shifts)
        if high is None:
            found.append(look_up(builder, isa, codes.table, code))
        else:
            word = builder.shuffle_vector(high, high, ir.Constant(V_I32, None))
            top = builder.shl(word, ir.Constant(V_I32, [31 - lane for lane in lanes]))
            found.append(either(builder, isa, codes.table, code, top))
    return found


def _by_digits(isa: str, codes: Codes) -> bool:
    """Whether levels are added before they become float32."""
    return codes.bits == 4 and isa != "generic"
