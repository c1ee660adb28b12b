"""Sums of products over decoded keys and values: the inner loop of attention.

out[q][lane] += a[q][i] * b[i][lane], i counting up: of scores, a are queries, i a key's elements
and lanes keys; of results, a are weights, i keys and lanes a value's elements. A sum has one fused
multiply-add after the other in one lane, so its bits do not depend on what is computed beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Any

from llvmlite import ir
from numba import types

from turbodflash_kernels._cpu import isa
from turbodflash_kernels._cpu.emit import (
    F32,
    I64,
    V_F32,
    Builder,
    Values,
    call,
    call_own,
    function,
    intrinsic,
    load,
    offset,
    pinned,
    plus,
    row_addresses,
    splat,
    store,
)

TURN_BITS = 2
TURN = 1 << TURN_BITS  # steps of a turn of the loop


def register() -> ir.VectorType:
    """Of float32, as wide as they are: of AVX2 half a vector."""
    return V_F32 if many_registers() else ir.VectorType(F32, 8)


def many_registers() -> bool:
    """Whether there are 32, each for a whole vector."""
    return isa.choose() == "avx512_vnni"


vectors_fill_registers: Any = intrinsic(
    "vectors_fill_registers", types.boolean, (), lambda builder: ir.IntType(1)(many_registers())
)
"""The same, for kernels."""


@cache
def products(most: int, vectors: int) -> Any:
    """products(queries, a, a_stride, count, b, b_step, b_apart, start, start_stride, out,
    out_stride), for one to `most` queries, or more, of which the first so many are done.

    a[q] lies at a + q * a_stride, the vectors of b[i] at b + i * b_step, b_apart apart, those of
    out[q] at out + q * out_stride, one behind the other; sums begin with what lies at start, as
    out does. count may be 0.

    A core of AVX2 has two multipliers of four steps, and sixteen registers: 6 x 1 and 3 x 2 vectors
    are twelve sums, which with their factors and what these meet fill all registers, if the
    compiler is kept from loading ahead. A neighbour on the same core takes half of the instructions
    that begin in a cycle, and then those that do not multiply count: four steps are one turn. With
    registers as wide as a vector, twelve sums are 6 x 2 vectors.
    """

    def emit(builder: Builder, args: Values) -> None:
        queries, *others = args

        def some_of_them(some: int) -> None:
            name = f"products_{some}x{vectors}"
            call_own(builder, name, others, partial(_emit, queries=some, vectors=vectors))

        by_count(builder, queries, most, some_of_them)

    return function(f"products_to_{most}x{vectors}", 11, emit)


def by_count(builder: Builder, count: ir.Value, most: int, body: Callable[[int], None]) -> None:
    """Emit body(some) for every number from 1 to `most`, of which `count` chooses one: the last if
    it is larger."""
    after, all_of_them = builder.append_basic_block(), builder.append_basic_block()
    choice = builder.switch(count, all_of_them)
    for some in range(1, most + 1):
        block = all_of_them if some == most else builder.append_basic_block()
        if some < most:
            choice.add_case(I64(some), block)
        builder.position_at_end(block)
        body(some)
        builder.branch(after)
    builder.position_at_end(after)


def _emit(builder: Builder, args: Values, queries: int, vectors: int) -> None:
    """For just so many queries."""
    a, a_stride, count, b, b_step, b_apart, start, start_stride, out, out_stride = args
    apart_rows = _multiples(builder, a_stride, queries)
    kind = register()
    pieces, size = range(16 * vectors // kind.count), 4 * kind.count
    starts = places(builder, row_addresses(builder, start, start_stride, queries), pieces)
    apart = [
        plus(builder, builder.mul(b_apart, I64(size * i // 64)), size * i % 64) for i in pieces
    ]
    add = _by_rows if queries > vectors + 2 else added

    def turn(index: ir.Value, at: ir.Value, sums: Values) -> Values:
        return steps(TURN, builder.mul(index, I64(TURN)), at, sums)

    def steps(count: int, index: ir.Value, at: ir.Value, sums: Values) -> Values:
        for i in range(count):
            here = builder.add(at, builder.mul(b_step, I64(i)))

            def lanes(piece: int, here: ir.Value = here) -> ir.Value:
                return load(builder, builder.add(here, apart[piece]), kind)

            first = offset(builder, a, plus(builder, index, i), 4)
            rows = [builder.add(first, apart_row) for apart_row in apart_rows]
            sums = add(builder, rows, I64(0), lanes, sums)
        return sums

    def rest(index: ir.Value, at: ir.Value, sums: Values) -> Values:
        return steps(1, builder.add(whole, index), at, sums)

    turns = builder.lshr(count, I64(TURN_BITS))
    whole = builder.shl(turns, I64(TURN_BITS))
    sums = [load(builder, at, kind) for at in starts]
    sums = perhaps(builder, turns, b, builder.mul(b_step, I64(TURN)), sums, turn)
    after = builder.add(b, builder.mul(b_step, whole))
    sums = perhaps(builder, builder.sub(count, whole), after, b_step, sums, rest)
    outs = places(builder, row_addresses(builder, out, out_stride, queries), pieces)
    for total, at in zip(sums, outs, strict=True):
        store(builder, total, at)


def _multiples(builder: Builder, stride: ir.Value, count: int) -> Values:
    """0, 1, 2, ... times the stride. The odd ones are registers of their own, whatever the compiler
    thinks, as addresses come with a factor of 1, 2, 4 or 8: it would add one up for every load."""
    kind = ir.FunctionType(I64, [I64])

    def multiple(i: int) -> ir.Value:
        product = builder.mul(stride, I64(i))
        return builder.asm(kind, "", "=r,0", [product], side_effect=False) if i % 2 else product

    return [multiple(i) for i in range(count)]


def places(builder: Builder, rows: Values, pieces: Iterable[int]) -> Values:
    """Where registers of sums lie: the first of every row, the second of every row, ..."""
    size = 4 * register().count
    return [plus(builder, row, size * piece) for piece in pieces for row in rows]


def added(
    builder: Builder,
    rows: Values,
    index: ir.Value,
    lanes: Callable[[int], ir.Value],
    sums: Values,
) -> Values:
    """sums + lanes * element `index` of each row, for piece after piece, as in `places`.

    lanes(piece) is loaded when its turn has come.
    """
    factors = [
        splat(builder, load(builder, offset(builder, row, index, 4), F32), sums[0].type.count)
        for row in rows
    ]
    crowded = len(rows) > 1 and _crowded()
    results: Values = []
    while len(results) < len(sums):
        mine = sums[len(results) : len(results) + len(rows)]
        vector = lanes(len(results) // len(rows))
        mine = [_fma(builder, vector, *pair) for pair in zip(factors, mine, strict=True)]
        results += pinned(builder, mine) if crowded else mine
    return results


def _crowded() -> bool:
    """Whether the compiler must be kept from using more registers than there are."""
    return isa.choose() != "generic" and not many_registers()


def _by_rows(
    builder: Builder,
    rows: Values,
    index: ir.Value,
    lanes: Callable[[int], ir.Value],
    sums: Values,
) -> Values:
    """As `added`, row after row: all lanes stay in registers, and one factor at a time."""
    vectors = [lanes(piece) for piece in range(len(sums) // len(rows))]
    results = list(sums)
    for i, row in enumerate(rows):
        number = load(builder, offset(builder, row, index, 4), F32)
        factor = splat(builder, number, vectors[0].type.count)
        places = range(i, len(sums), len(rows))
        mine = [
            _fma(builder, vector, factor, sums[place])
            for vector, place in zip(vectors, places, strict=True)
        ]
        if _crowded():
            mine = pinned(builder, mine)
        for place, total in zip(places, mine, strict=True):
            results[place] = total
    return results


def _fma(builder: Builder, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    return call(builder, f"llvm.fmuladd.v{a.type.count}f32", a.type, a, b, c)


def loop(
    builder: Builder,
    count: ir.Value,
    start: ir.Value,
    stride: ir.Value,
    values: Values,
    step: Callable[[ir.Value, ir.Value, Values], Values],
) -> Values:
    """for i in range(count): values = step(i, start + i * stride, values); count >= 1."""
    before = builder.block
    inside, after = builder.append_basic_block(), builder.append_basic_block()
    builder.branch(inside)
    builder.position_at_end(inside)
    index, at = builder.phi(I64), builder.phi(I64)
    carried = [builder.phi(value.type) for value in values]
    results = step(index, at, carried)
    following = builder.add(index, I64(1))
    turns = [(index, I64(0), following), (at, start, builder.add(at, stride))]
    turns += zip(carried, values, results, strict=True)
    for phi, first, later in turns:
        phi.add_incoming(first, before)
        phi.add_incoming(later, builder.block)
    builder.cbranch(builder.icmp_signed("<", following, count), inside, after)
    builder.position_at_end(after)
    return results


def perhaps(
    builder: Builder,
    count: ir.Value,
    start: ir.Value,
    stride: ir.Value,
    values: Values,
    step: Callable[[ir.Value, ir.Value, Values], Values],
) -> Values:
    """As `loop`, of a count that may be 0."""
    before, after = builder.block, builder.append_basic_block()
    inside = builder.append_basic_block()
    builder.cbranch(builder.icmp_signed(">", count, I64(0)), inside, after)
    builder.position_at_end(inside)
    results = loop(builder, count, start, stride, values, step)
    inside = builder.block
    builder.branch(after)
    builder.position_at_end(after)
    joined = [builder.phi(value.type) for value in values]
    for phi, first, later in zip(joined, values, results, strict=True):
        phi.add_incoming(first, before)
        phi.add_incoming(later, inside)
    return joined
