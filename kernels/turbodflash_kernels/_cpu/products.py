"""Sums of products over decoded keys and values: the inner loop of attention.

out[q][lane] += a[q][i] * b[i][lane], i counting up: of scores, a are queries, i a key's elements
and lanes keys; of results, a are weights, i keys and lanes a value's elements. A sum has one fused
multiply-add after the other in one lane, so its bits do not depend on what is computed beside it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from llvmlite import ir

from turbodflash_kernels._cpu.emit import (
    F32,
    I64,
    V_F32,
    Builder,
    Values,
    fma,
    function,
    load,
    offset,
    plus,
    row_addresses,
    splat,
    store,
)

VECTOR_BYTES = 64


@cache
def products(queries: int, vectors: int, fresh: bool) -> Any:
    """products(a, a_stride, count, b, b_step, b_apart, out, out_stride): count >= 1 products.

    a[q] lies at a + q * a_stride, the vectors of b[i] at b + i * b_step, b_apart apart, those of
    out[q] at out + q * out_stride, one behind the other. fresh: sums begin at 0, not at what out
    holds.

    Twelve sums keep both multipliers of a core busy and fit its sixteen registers: 4 x 1 and 3 x 2
    vectors of sixteen lanes are what AVX2 likes.
    """

    def emit(builder: Builder, args: Values) -> None:
        a, a_stride, count, b, b_step, b_apart, out, out_stride = args
        rows = row_addresses(builder, a, a_stride, queries)
        outs = [
            plus(builder, row, VECTOR_BYTES * v)
            for row in row_addresses(builder, out, out_stride, queries)
            for v in range(vectors)
        ]
        zero = ir.Constant(V_F32, None)
        sums = [zero if fresh else load(builder, at, V_F32) for at in outs]
        apart = [builder.mul(b_apart, I64(v)) for v in range(vectors)]

        def step(index: ir.Value, at: ir.Value, sums: Values) -> Values:
            lanes = [load(builder, builder.add(at, by), V_F32) for by in apart]
            factors = [load(builder, offset(builder, row, index, 4), F32) for row in rows]
            return [
                fma(builder, lanes[i % vectors], splat(builder, factors[i // vectors]), total)
                for i, total in enumerate(sums)
            ]

        for total, at in zip(_loop(builder, count, b, b_step, sums, step), outs, strict=True):
            store(builder, total, at)

    return function(f"products_{queries}x{vectors}{'_fresh' * fresh}", 8, emit)


def _loop(
    builder: Builder, count: ir.Value, start: ir.Value, stride: ir.Value, values: Values, step: Any
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
    loop = [(index, I64(0), following), (at, start, builder.add(at, stride))]
    loop += zip(carried, values, results, strict=True)
    for phi, first, later in loop:
        phi.add_incoming(first, before)
        phi.add_incoming(later, builder.block)
    builder.cbranch(builder.icmp_signed("<", following, count), inside, after)
    builder.position_at_end(after)
    return results
