"""Blocks of the turbo types as float32: 128 rotated numbers, of which half may repeat the others.

A head that fills only half a block has zeros behind it. Such a block is turned into two halves that
are equal but for their signs, which are the rotation's own: number 64 + i is number i, or its
negative. The same is true of a query. So both halves of a product are equal, and a half block is
decoded as the sum of its halves, signs put right: the products of such sums with the first half of
a query are the products of whole blocks, whatever the codes are. Codes are symmetric, so what is
negative has all bits of its code flipped; where that is all that halves differ in, which is almost
always, their sum is twice the first one, and the second is never looked up.
"""

from __future__ import annotations

from collections.abc import Sequence

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
from turbodflash_kernels._cpu.tables import either, look_up, nibbles_of_rows, nibbles_of_tiles
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


def _doubled(table: Sequence[float]) -> tuple[float, ...]:
    return tuple(2 * level for level in table)


# -- tiles: lanes are keys -----------------------------------------------------------------------


def _tile(
    builder: Builder, isa: str, codes: Codes, at: ir.Value, to: ir.Value, folded: bool
) -> None:
    norms = builder.fpext(load(builder, at, ir.VectorType(F16, LANES)), V_F32)
    count = codes.words // 2

    def word(index: int) -> ir.Value:
        return load(builder, plus(builder, at, 2 * LANES + VECTOR_BYTES * index), V_I32)

    def flipped(index: int, bits: int) -> ir.Value:
        """A word of the second half, low or high, as its twin in the first half should be."""
        first = count if index < codes.words else codes.words + codes.high // 2
        mask = constant_splat(flips(codes, index - first, bits), V_I32)
        return builder.xor(word(index), mask)

    def put(index: int, numbers: Values) -> None:
        for place, number in enumerate(numbers):
            element = plus(builder, to, VECTOR_BYTES * codes.at(index, place))
            store(builder, builder.fmul(number, norms), element)

    def numbers(index: int, table: Sequence[float], second: bool = False) -> Values:
        high = codes.words + codes.at(index, 0) // 32
        if second:
            low, top = flipped(index, codes.bits), flipped(high, 1) if codes.high else None
        else:
            low, top = word(index), word(high) if codes.high else None
        return _lanes_of_tile(builder, isa, codes, table, low, top, codes.at(index, 0) % 32)

    if not folded:
        for index in range(codes.words):
            put(index, numbers(index, codes.table))
        return
    differs: ir.Value = ir.Constant(V_I32, None)
    for index in range(count):
        other = flipped(count + index, codes.bits)
        differs = builder.or_(differs, builder.xor(word(index), other))
    for index in range(codes.words, codes.words + codes.high // 2):
        other = flipped(index + codes.high // 2, 1)
        differs = builder.or_(differs, builder.xor(word(index), other))
    with builder.if_else(_is_zero(builder, differs)) as (alike, unlike):
        with alike:
            for index in range(count):
                put(index, numbers(index, _doubled(codes.table)))
        with unlike:
            for index in range(count):
                halves = numbers(index, codes.table), numbers(count + index, codes.table, True)
                put(index, [builder.fadd(a, b) for a, b in zip(*halves, strict=True)])


def _lanes_of_tile(
    builder: Builder,
    isa: str,
    codes: Codes,
    table: Sequence[float],
    low: ir.Value,
    high: ir.Value | None,
    first: int,
) -> Values:
    """What the codes of a word stand for, place after place. first: the first one's bit in high."""
    if codes.bits == 4 and isa != "generic":
        return nibbles_of_tiles(builder, table, low)
    found = []
    for place in range(32 // codes.bits):
        code = builder.lshr(low, constant_splat(codes.bits * place, V_I32))
        if high is None:
            found.append(look_up(builder, isa, table, code))
        else:
            top = builder.shl(high, constant_splat(31 - first - place, V_I32))
            found.append(either(builder, isa, table, code, top))
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

    def group(index: int, table: Sequence[float], second: bool = False) -> Values:
        """Two vectors: elements 32 * index and on."""
        count = GROUP * codes.bits // 32
        low_at, high_at = index * count, codes.words + index
        if second:
            low = flipped(low_at, count, codes.words // 2, codes.bits)
            start = codes.words + codes.high // 2
            high = flipped(high_at, 1, start, 1) if codes.high else None
        else:
            low, high = words(low_at, count), words(high_at, 1) if codes.high else None
        return _lanes_of_row(builder, isa, codes, table, low, high)

    def put(index: int, numbers: Values) -> None:
        for i, number in enumerate(numbers):
            place = plus(builder, to, 4 * (GROUP * index + LANES * i))
            store(builder, builder.fmul(number, norm), place)

    groups = HALF // GROUP
    if not folded:
        for index in range(2 * groups):
            put(index, group(index, codes.table))
        return
    half, high = codes.words // 2, codes.high // 2
    alike_now = _is_zero(
        builder, builder.xor(words(0, half), flipped(half, half, half, codes.bits))
    )
    if high:
        start = codes.words + high
        bits = builder.xor(words(codes.words, high), flipped(start, high, start, 1))
        alike_now = builder.and_(alike_now, _is_zero(builder, bits))
    with builder.if_else(alike_now) as (alike, unlike):
        with alike:
            for index in range(groups):
                put(index, group(index, _doubled(codes.table)))
        with unlike:
            for index in range(groups):
                halves = group(index, codes.table), group(groups + index, codes.table, True)
                put(index, [builder.fadd(a, b) for a, b in zip(*halves, strict=True)])


def _lanes_of_row(
    builder: Builder,
    isa: str,
    codes: Codes,
    table: Sequence[float],
    low: ir.Value,
    high: ir.Value | None,
) -> Values:
    """What 32 codes stand for, as two vectors."""
    if codes.bits == 4 and isa != "generic":
        return nibbles_of_rows(builder, table, low)
    each, found = 32 // codes.bits, []
    for half in range(2):
        lanes = range(LANES * half, LANES * (half + 1))
        spread = ir.Constant(V_I32, [lane // each for lane in lanes])
        shifts = ir.Constant(V_I32, [lane % each * codes.bits for lane in lanes])
        code = builder.lshr(builder.shuffle_vector(low, low, spread), shifts)
        if high is None:
            found.append(look_up(builder, isa, table, code))
        else:
            word = builder.shuffle_vector(high, high, ir.Constant(V_I32, None))
            top = builder.shl(word, ir.Constant(V_I32, [31 - lane for lane in lanes]))
            found.append(either(builder, isa, table, code, top))
    return found


def _is_zero(builder: Builder, words: ir.Value) -> ir.Value:
    """Whether no lane has a bit set."""
    some = builder.icmp_unsigned("!=", words, ir.Constant(words.type, None))
    if words.type.count == 1:
        return builder.not_(builder.extract_element(some, I32(0)))
    lanes = builder.bitcast(some, ir.IntType(words.type.count))
    return builder.icmp_unsigned("==", lanes, lanes.type(0))
