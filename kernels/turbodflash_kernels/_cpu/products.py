"""Sums of products over decoded keys and values: the inner loop of attention.

out[q][lane] += a[q][i] * b[i][lane], i counting up: of scores, a are queries, i a key's elements
and lanes keys; of results, a are weights, i keys and lanes a value's elements. A sum has one fused
multiply-add after the other in one lane, so its bits do not depend on what is computed beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from llvmlite import ir

from turbodflash_kernels._cpu import isa
from turbodflash_kernels._cpu.emit import (
    F32,
    I64,
    Builder,
    Values,
    call,
    function,
    load,
    offset,
    pinned,
    plus,
    row_addresses,
    splat,
    store,
)

HALF = ir.VectorType(F32, 8)  # half a vector: a register of AVX2
HALF_BYTES = 32


@cache
def products(queries: int, vectors: int, fresh: bool) -> Any:
    """products(a, a_stride, count, b, b_step, b_apart, out, out_stride): count >= 1 products.

    a[q] lies at a + q * a_stride, the vectors of b[i] at b + i * b_step, b_apart apart, those of
    out[q] at out + q * out_stride, one behind the other. fresh: sums begin at 0, not at what out
    holds.

    A core of AVX2 has two multipliers of four steps, and sixteen registers: 4 x 1 vectors are eight
    sums, which keep both busy; 3 x 2 are twelve, which with three factors and what they meet fill
    all registers, if the compiler is kept from loading ahead.
    """

    def emit(builder: Builder, args: Values) -> None:
        a, a_stride, count, b, b_step, b_apart, out, out_stride = args
        rows = row_addresses(builder, a, a_stride, queries)
        halves = range(2 * vectors)
        outs = half_places(builder, row_addresses(builder, out, out_stride, queries), halves)
        zero = ir.Constant(HALF, None)
        sums = [zero if fresh else load(builder, at, HALF) for at in outs]
        apart = [
            plus(builder, builder.mul(b_apart, I64(half // 2)), HALF_BYTES * (half % 2))
            for half in halves
        ]

        def step(index: ir.Value, at: ir.Value, sums: Values) -> Values:
            def lanes(half: int) -> ir.Value:
                return load(builder, builder.add(at, apart[half]), HALF)

            return added(builder, rows, index, lanes, sums)

        sums = loop(builder, count, b, b_step, sums, step)
        for total, at in zip(sums, outs, strict=True):
            store(builder, total, at)

    return function(f"products_{queries}x{vectors}{'_fresh' * fresh}", 8, emit)


def half_places(builder: Builder, rows: Values, halves: Iterable[int]) -> Values:
    """Where half vectors lie: the first of every row, the second of every row, ..."""
    return [plus(builder, row, HALF_BYTES * half) for half in halves for row in rows]


def added(
    builder: Builder,
    rows: Values,
    index: ir.Value,
    lanes: Callable[[int], ir.Value],
    sums: Values,
) -> Values:
    """sums + lanes * element `index` of each row, for half after half, as in `half_places`.

    lanes(half) is loaded when its turn has come.
    """
    factors = [
        splat(builder, load(builder, offset(builder, row, index, 4), F32), HALF.count)
        for row in rows
    ]
    crowded = len(rows) > 1 and isa.choose() != "generic"
    results: Values = []
    while len(results) < len(sums):
        mine = sums[len(results) : len(results) + len(rows)]
        vector = lanes(len(results) // len(rows))
        mine = [_fma(builder, vector, *pair) for pair in zip(factors, mine, strict=True)]
        results += pinned(builder, mine) if crowded else mine
    return results


def _fma(builder: Builder, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    return call(builder, f"llvm.fmuladd.v{HALF.count}f32", HALF, a, b, c)


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
