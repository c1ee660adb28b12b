"""Scores and weighted sums of turbo4 in whole numbers, where a head fills half a block (64).

Two levels for each number are what such a head costs most (see turbo_codes). Here they are looked
up as two digits, 14 bits together, and their sums are multiplied as they are, by numbers of 16 bits
(rounding_kernels): two products in the time of one of float32, and nothing to convert. What is lost
is a hundredth of what the type loses. Sums are exact, whatever their order, as long as they fit 32
bits, which the rounding sees to: so a row's bits do not depend on its company.

scores(queries, q_bytes, count, tile, tile_bytes, room, out, later, size): 32 keys, two tiles.
sums(whole, count, codes, row_bytes, values, out, out_bytes, factors, room, later, size): so many
values, by twos, whose codes of 32 bytes begin at `codes` and 32 bytes behind.
Up to three queries take the numbers out of registers; for more they are put into `room` first, 4 KB
of keys, or 8 of values. Scores of a query lie SCORE_BYTES apart. Memory is asked for the `size`
bytes at `later` meanwhile, some at every step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from turbodflash_kernels._cpu.chunk_words import SCORE_BYTES, WHOLE_BYTES
from turbodflash_kernels._cpu.codecs import codes_of
from turbodflash_kernels._cpu.emit import (
    F16,
    I64,
    Builder,
    Values,
    constant_splat,
    emit_prefetch,
    function,
    load,
    pinned,
    plus,
    row_addresses,
    store,
)
from turbodflash_kernels._cpu.integers import (
    digits_of,
    float_at,
    four_at,
    levels_of_pairs,
    shuffled,
    sums_of_pairs,
    two_at,
)
from turbodflash_kernels._cpu.products import loop
from turbodflash_kernels._cpu.tables import BYTES, HALF_F32, HALF_I32, WORDS, interleaved
from turbodflash_kernels._cpu.turbo_codes import flips

TURBO4 = codes_of("turbo4")
DIGITS, UNIT = digits_of(TURBO4.table, 63 * 129)
# two levels are below 2^14 units; sizes of what they are multiplied by add up to this, and to 64
# more by rounding, which makes less than 2^31
MOST_SUM = 2**17 - 128
AT_ONCE = 3  # queries: there are no registers for more
HALF_WORDS = 8  # of a block's half: 64 codes
EIGHT_BYTES, PAIR_BYTES = 1024, 128  # of eight keys in the room, and of half the numbers of a pair
WORD_BYTES = 64  # of a word of sixteen keys

Source = Callable[[int], Values]
"""Vectors of a step: of lower halves of bytes (0), or of upper ones (1)."""


def build(name: str) -> Any:
    return {"scores": scores, "sums": sums}[name]()


# -- scores --------------------------------------------------------------------------------------


def scores() -> Any:
    one, two, three = (_scores(count, True) for count in (1, 2, 3))
    rest_of_one, rest_of_two, all_three = (_scores(count, False) for count in (1, 2, 3))
    unpack = _unpacked_keys()

    def kernel(queries, q_bytes, count, tile, tile_bytes, room, out, later, size):
        pace = size // (4 * HALF_WORDS)
        for eight in range(4):
            norms = tile + eight // 2 * tile_bytes + eight % 2 * 16
            words, to = norms + 32 + eight % 2 * 16, out + 32 * eight
            if count == 3:
                three(queries, q_bytes, norms, words, to, later, pace)
            elif count == 2:
                two(queries, q_bytes, norms, words, to, later, pace)
            elif count == 1:
                one(queries, q_bytes, norms, words, to, later, pace)
            else:
                unpack(words, room + EIGHT_BYTES * eight, later, pace)
            later += HALF_WORDS * pace
        if count <= AT_ONCE:
            return
        for j in range(0, count, AT_ONCE):
            q = queries + q_bytes * j
            for eight in range(4):
                norms = tile + eight // 2 * tile_bytes + eight % 2 * 16
                at, to = room + EIGHT_BYTES * eight, out + SCORE_BYTES * j + 32 * eight
                if count - j >= AT_ONCE:
                    all_three(q, q_bytes, norms, at, to, 0, 0)
                elif count - j == 2:
                    rest_of_two(q, q_bytes, norms, at, to, 0, 0)
                else:
                    rest_of_one(q, q_bytes, norms, at, to, 0, 0)

    return kernel


def _scores(count: int, packed: bool) -> Any:
    """Of eight keys. A vector has four of eight numbers of four keys, so sums are those of two
    lanes, which are added up at the end."""

    def emit(builder: Builder, args: Values) -> None:
        q, q_bytes, norms, source, out, later, pace = args
        rows = row_addresses(builder, q, q_bytes, count)
        sums: Values = [ir.Constant(HALF_I32, None)] * (2 * count)
        for word in range(HALF_WORDS):
            numbers = _unpacked(builder, source, 4 * word)
            if packed:
                _ask(builder, later, I64(word), pace)
                numbers = _of_keys(builder, source, word)
            for upper in (0, 1):
                results: Values = []
                for vector in numbers(upper):
                    factors = [
                        four_at(builder, plus(builder, row, 16 * word + 8 * upper)) for row in rows
                    ]
                    results += _added(builder, vector, factors, sums[len(results) :])
                sums = results
        scales = builder.fpext(load(builder, norms, ir.VectorType(F16, 8)), HALF_F32)
        outs = row_addresses(builder, out, I64(SCORE_BYTES), count)
        for low, high, row, to in zip(sums[:count], sums[count:], rows, outs, strict=True):
            even = shuffled(builder, low, high, [0, 2, 8, 10, 4, 6, 12, 14])
            odd = shuffled(builder, low, high, [1, 3, 9, 11, 5, 7, 13, 15])
            total = builder.sitofp(builder.add(even, odd), HALF_F32)
            end = builder.add(row, builder.sub(q_bytes, I64(4)))
            factor = builder.fmul(scales, float_at(builder, end))
            store(builder, builder.fmul(total, factor), to)

    return function(f"whole_scores_{count}_{packed}", 7, emit)


def _unpacked_keys() -> Any:
    def emit(builder: Builder, args: Values) -> None:
        source, to, later, pace = args
        for word in range(HALF_WORDS):
            _ask(builder, later, I64(word), pace)
            numbers = _of_keys(builder, source, word)
            _put(builder, [*numbers(0), *numbers(1)], plus(builder, to, 128 * word))

    return function("unpacked_keys", 4, emit)


def _of_keys(builder: Builder, words: ir.Value, word: int) -> Source:
    first = load(builder, plus(builder, words, WORD_BYTES * word), BYTES)
    other = load(builder, plus(builder, words, WORD_BYTES * (HALF_WORDS + word)), HALF_I32)
    other = builder.xor(other, constant_splat(flips(TURBO4, word, 4), HALF_I32))
    codes = [first, builder.bitcast(other, BYTES)]
    return lambda upper: levels_of_pairs(builder, DIGITS, codes, upper)


# -- weighted sums -------------------------------------------------------------------------------


def sums() -> Any:
    one, two, three = (_sums(count) for count in (1, 2, 3))
    unpack = [_unpacked_values(upper) for upper in (0, 1)]
    unpack_lower, unpack_upper = unpack
    lower_of_one, lower_of_two, lower_of_three = (_half_sums(count, 0) for count in (1, 2, 3))
    upper_of_one, upper_of_two, upper_of_three = (_half_sums(count, 1) for count in (1, 2, 3))

    def kernel(whole, count, codes, row_bytes, values, out, out_bytes, factors, room, later, size):
        pairs = (values + 1) // 2
        pace = size // (2 * pairs)
        if count == 3:
            three(whole, codes, row_bytes, pairs, out, out_bytes, factors, later, pace)
        elif count == 2:
            two(whole, codes, row_bytes, pairs, out, out_bytes, factors, later, pace)
        elif count == 1:
            one(whole, codes, row_bytes, pairs, out, out_bytes, factors, later, pace)
        if count <= AT_ONCE:
            return
        for upper in range(2):
            if upper == 0:
                unpack_lower(codes, row_bytes, pairs, room, later, pace)
            else:
                unpack_upper(codes, row_bytes, pairs, room, later + pairs * pace, pace)
            for j in range(0, count, AT_ONCE):
                some, at = min(count - j, AT_ONCE), whole + WHOLE_BYTES * j
                to, by = out + out_bytes * j, factors + 4 * j
                if upper == 0:
                    if some == 3:
                        lower_of_three(at, room, pairs, to, out_bytes, by)
                    elif some == 2:
                        lower_of_two(at, room, pairs, to, out_bytes, by)
                    else:
                        lower_of_one(at, room, pairs, to, out_bytes, by)
                elif some == 3:
                    upper_of_three(at, room, pairs, to, out_bytes, by)
                elif some == 2:
                    upper_of_two(at, room, pairs, to, out_bytes, by)
                else:
                    upper_of_one(at, room, pairs, to, out_bytes, by)

    return kernel


def _sums(count: int) -> Any:
    """Of all 64 numbers, those of lower halves of bytes first."""

    def emit(builder: Builder, args: Values) -> None:
        whole, codes, row_bytes, pairs, out, out_bytes, factors, later, pace = args
        outs = row_addresses(builder, out, out_bytes, count)
        step_bytes = builder.mul(row_bytes, I64(2))
        for upper in (0, 1):

            def vectors(index: ir.Value, at: ir.Value, upper: int = upper) -> Values:
                step = builder.add(index, builder.mul(pairs, I64(upper)))
                _ask(builder, later, step, pace)
                return _of_values(builder, at, row_bytes, upper)

            totals = _weighted(builder, whole, count, pairs, (codes, step_bytes), vectors)
            (_finish if upper else _put_off)(builder, totals, outs, factors)

    return function(f"whole_sums_{count}", 9, emit)


def _half_sums(count: int, upper: int) -> Any:
    """Of 32 numbers that are unpacked."""

    def emit(builder: Builder, args: Values) -> None:
        whole, room, pairs, out, out_bytes, factors = args
        outs = row_addresses(builder, out, out_bytes, count)

        def vectors(index: ir.Value, at: ir.Value) -> Values:
            return [*_unpacked(builder, at, 0)(0), *_unpacked(builder, at, 2)(0)]

        totals = _weighted(builder, whole, count, pairs, (room, I64(PAIR_BYTES)), vectors)
        (_finish if upper else _put_off)(builder, totals, outs, factors)

    return function(f"half_sums_{count}_{upper}", 6, emit)


def _weighted(
    builder: Builder,
    whole: ir.Value,
    count: int,
    pairs: ir.Value,
    walk: tuple[ir.Value, ir.Value],
    vectors: Callable[[ir.Value, ir.Value], Values],
) -> Values:
    """Sums of the four vectors of each pair of values times their weights."""
    queries = row_addresses(builder, whole, I64(WHOLE_BYTES), count)

    def step(index: ir.Value, at: ir.Value, sums: Values) -> Values:
        place, results = builder.mul(index, I64(4)), list[Any]()
        for vector in vectors(index, at):
            # loaded when their turn has come: twelve sums leave no registers for them
            factors = [two_at(builder, builder.add(query, place)) for query in queries]
            results += _added(builder, vector, factors, sums[len(results) :])
        return results

    zeros: Values = [ir.Constant(HALF_I32, None)] * (4 * count)
    return loop(builder, pairs, *walk, zeros, step)


def _put_off(builder: Builder, totals: Values, outs: Values, factors: ir.Value) -> None:
    """Sums of even numbers wait in `outs` for the others."""
    for j, row in enumerate(outs):
        _put(builder, totals[j :: len(outs)], row)


def _finish(builder: Builder, totals: Values, outs: Values, factors: ir.Value) -> None:
    for j, row in enumerate(outs):
        factor = float_at(builder, plus(builder, factors, 4 * j))
        even = [load(builder, plus(builder, row, 32 * part), HALF_I32) for part in range(4)]
        for part, pair in enumerate(zip(even, totals[j :: len(outs)], strict=True)):
            for half in (0, 1):
                lanes = [4 * half + i // 2 + i % 2 * 8 for i in range(8)]
                number = builder.sitofp(shuffled(builder, *pair, lanes), HALF_F32)
                at = plus(builder, row, 128 * half + 32 * part)
                store(builder, builder.fmul(number, factor), at)


def _unpacked_values(upper: int) -> Any:
    def emit(builder: Builder, args: Values) -> None:
        codes, row_bytes, pairs, room, later, pace = args

        def step(index: ir.Value, at: ir.Value, nothing: Values) -> Values:
            _ask(builder, later, index, pace)
            to = builder.add(room, builder.mul(index, I64(PAIR_BYTES)))
            _put(builder, _of_values(builder, at, row_bytes, upper), to)
            return nothing

        loop(builder, pairs, codes, builder.mul(row_bytes, I64(2)), [], step)

    return function(f"unpacked_values_{upper}", 6, emit)


def _of_values(builder: Builder, at: ir.Value, row_bytes: ir.Value, upper: int) -> Values:
    """Numbers of two values side by side."""
    mask = ir.Constant(HALF_I32, [flips(TURBO4, word, 4) for word in range(HALF_WORDS)])
    both = []
    for row in (at, builder.add(at, row_bytes)):
        other = builder.xor(load(builder, plus(builder, row, 32), HALF_I32), mask)
        codes = [load(builder, row, BYTES), builder.bitcast(other, BYTES)]
        both.append(levels_of_pairs(builder, DIGITS, codes, upper))
    return [interleaved(builder, a, b, part) for a, b in zip(*both, strict=True) for part in (0, 1)]


# -- pieces of both ------------------------------------------------------------------------------


def _unpacked(builder: Builder, at: ir.Value, first: int) -> Source:
    def vectors(upper: int) -> Values:
        places = (first + 2 * upper, first + 2 * upper + 1)
        return [load(builder, plus(builder, at, 32 * place), WORDS) for place in places]

    return vectors


def _put(builder: Builder, vectors: Values, to: ir.Value) -> None:
    for place, vector in enumerate(vectors):
        store(builder, vector, plus(builder, to, 32 * place))


def _added(builder: Builder, numbers: ir.Value, factors: Values, sums: Values) -> Values:
    """The first sums, one for each of the factors, plus numbers times factors."""
    mine = [
        builder.add(total, sums_of_pairs(builder, numbers, factor))
        for factor, total in zip(factors, sums, strict=False)
    ]
    return pinned(builder, mine) if len(mine) > 1 else mine


def _ask(builder: Builder, later: ir.Value, step: ir.Value, pace: ir.Value) -> None:
    """For two lines: a step stands for a little more than one."""
    at = builder.add(later, builder.mul(step, pace))
    emit_prefetch(builder, at)
    emit_prefetch(builder, builder.add(at, builder.lshr(pace, I64(1))))
