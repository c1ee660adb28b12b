"""Weighted sums of q8_0 values in whole numbers, by vpdpbusd: four products for each lane at once.

A weight times a value's scale is rounded to 16 bits, two digits without a sign, the largest of a
chunk to 65535; values are the bytes they are. A chunk's sums are exact, whatever their order, and
fit 32 bits: one conversion and one multiplication follow. A block of 32 numbers has scales of its
own, so it is weighed and summed up alone.

weights(scores, count, begin, end, scales, row_bytes, whole, factors, work): as in rounding_kernels;
of every four weights the upper digits, then the lower ones. No scale is negative.
sums(whole, count, codes, row_bytes, values, out, out_bytes, factors, room, later, size): as in
integer_kernels, for 32 numbers of so many values.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from turbodflash_kernels._cpu.chunk_words import SCORE_BYTES, WHOLE_BYTES
from turbodflash_kernels._cpu.codes import V_I8
from turbodflash_kernels._cpu.emit import (
    F32,
    I8,
    I16,
    I32,
    I64,
    V_F32,
    V_I32,
    Builder,
    Values,
    call,
    call_own,
    constant_splat,
    emit_prefetch,
    function,
    intrinsic,
    load,
    offset,
    plus,
    row_addresses,
    splat,
    store,
)
from turbodflash_kernels._cpu.machines import vpdpbusd
from turbodflash_kernels._cpu.memory import LINE
from turbodflash_kernels._cpu.products import by_count, loop
from turbodflash_kernels._cpu.rounding_kernels import SMALLEST, gather_halves
from turbodflash_kernels._cpu.simd import (
    f32x16,
    store_f32,
    vbelow,
    vload,
    vmax,
    vmax_of,
    vsplat,
    vstore,
    vsum,
)

TOGETHER = 4  # values of a step
AT_ONCE = 6  # queries: two digits each of two vectors are 24 sums
STEP_BYTES = 128  # of 32 numbers of four values
LINES = 5  # that are asked for together
ZERO, MOST = np.float32(0), np.float32(65535)


def build(name: str) -> Any:
    return {"weights": weights, "sums": sums}[name]()


# -- weights -------------------------------------------------------------------------------------


def weights() -> Any:
    def kernel(scores, count, begin, end, scales, row_bytes, whole, factors, work):
        for i in range(begin, end, 16):
            found = gather_halves(scales + i * row_bytes, row_bytes)
            vstore(work + 4 * i, vbelow(end - i, found, vsplat(ZERO)))
        for j in range(count):
            at, to = scores + SCORE_BYTES * j, whole + WHOLE_BYTES * j
            highest, total = vsplat(ZERO), vsplat(ZERO)
            for i in range(begin, end, 16):
                number = vload(at + 4 * i) * vload(work + 4 * i)
                highest, total = vmax(number, highest), total + number
            most, lost = vmax_of(highest), vsum(total) * ZERO  # NaN if one is not finite
            factor = (MOST / most if most > SMALLEST else ZERO) + lost
            for i in range(begin, end, 16):
                number = vload(at + 4 * i) * vload(work + 4 * i)
                store_digits(to + 2 * i, number * vsplat(factor))
            store_f32(factors + 4 * j, np.float32(1) / factor if factor != ZERO else factor)

    return kernel


def _store_digits(builder: Builder, address: ir.Value, x: ir.Value) -> None:
    near = call(builder, "llvm.rint.v16f32", V_F32, x)
    whole = builder.trunc(builder.fptosi(near, V_I32), ir.VectorType(I16, 16))
    digits = builder.bitcast(whole, ir.VectorType(I8, 32))
    order = [8 * four + 2 * i + 1 - low for four in range(4) for low in (0, 1) for i in range(4)]
    places = ir.Constant(ir.VectorType(I32, 32), order)
    store(builder, builder.shuffle_vector(digits, digits, places), address)


store_digits: Any = intrinsic("store_digits", types.void, (types.int64, f32x16), _store_digits)


# -- sums ----------------------------------------------------------------------------------------


def sums() -> Any:
    of_packed, of_ordered, put_in_order = _sums(False), _sums(True), _put_in_order()

    def kernel(whole, count, codes, row_bytes, values, out, out_bytes, factors, room, later, size):
        steps = (values + TOGETHER - 1) // TOGETHER
        pace = size // steps
        if count <= AT_ONCE:
            of_packed(count, whole, codes, row_bytes, steps, out, out_bytes, factors, later, pace)
            return
        put_in_order(codes, row_bytes, steps, room, later, pace)
        for j in range(0, count, AT_ONCE):
            of_ordered(count - j, whole + WHOLE_BYTES * j, room, 0, steps, out + out_bytes * j,
                       out_bytes, factors + 4 * j, 0, 0)  # fmt: skip

    return kernel


def _sums(ordered: bool) -> Any:
    """Of one to six queries, or more, of which the first six are done. ordered: the codes were put
    in order."""

    def emit(builder: Builder, args: Values) -> None:
        count, *others = args

        def some_of_them(some: int) -> None:
            name = f"byte_sums_{some}_{ordered}"
            call_own(builder, name, others, partial(_emit, queries=some, ordered=ordered))

        by_count(builder, count, AT_ONCE, some_of_them)

    return function(f"byte_sums_{ordered}", 10, emit)


def _emit(builder: Builder, args: Values, queries: int, ordered: bool) -> None:
    """For just so many queries."""
    whole, codes, row_bytes, steps, out, out_bytes, factors, later, pace = args
    rows = row_addresses(builder, whole, I64(WHOLE_BYTES), queries)

    def step(index: ir.Value, at: ir.Value, sums: Values) -> Values:
        if ordered:
            both = [load(builder, plus(builder, at, 64 * half), V_I8) for half in (0, 1)]
        else:
            _ask(builder, later, index, pace)
            both = _in_order(builder, at, row_bytes)
        before, results = builder.mul(index, I64(2 * TOGETHER)), list[Any]()
        for row in rows:
            mine = builder.add(row, before)
            for digit in (0, 1):
                word = load(builder, plus(builder, mine, TOGETHER * digit), I32)
                four = splat(builder, word)
                for part in both:
                    so_far = sums[len(results)]
                    results.append(vpdpbusd(builder, 512, so_far, four, part))
        return results

    stride = I64(STEP_BYTES) if ordered else builder.mul(row_bytes, I64(TOGETHER))
    zeros: Values = [ir.Constant(V_I32, None)] * (4 * queries)
    totals = loop(builder, steps, codes, stride, zeros, step)
    for r, to in enumerate(row_addresses(builder, out, out_bytes, queries)):
        factor = splat(builder, load(builder, plus(builder, factors, 4 * r), F32))
        for half in (0, 1):
            upper, lower = totals[4 * r + half], totals[4 * r + 2 + half]
            total = builder.add(builder.shl(upper, constant_splat(8, V_I32)), lower)
            result = builder.fmul(builder.sitofp(total, V_F32), factor)
            store(builder, result, plus(builder, to, 64 * half))


def _put_in_order() -> Any:
    def emit(builder: Builder, args: Values) -> None:
        codes, row_bytes, steps, room, later, pace = args

        def step(index: ir.Value, at: ir.Value, nothing: Values) -> Values:
            _ask(builder, later, index, pace)
            to = offset(builder, room, index, STEP_BYTES)
            for half, part in enumerate(_in_order(builder, at, row_bytes)):
                store(builder, part, plus(builder, to, 64 * half))
            return nothing

        loop(builder, steps, codes, builder.mul(row_bytes, I64(TOGETHER)), [], step)

    return function("byte_values_in_order", 6, emit)


def _in_order(builder: Builder, at: ir.Value, row_bytes: ir.Value) -> Values:
    """Of four values sixteen numbers each, and sixteen more: the four codes of a number side by
    side."""
    rows = row_addresses(builder, at, row_bytes, TOGETHER)
    order = ir.Constant(ir.VectorType(I32, 64), [16 * (i % 4) + i // 4 for i in range(64)])
    vectors = []
    for half in (0, 1):
        parts = [load(builder, plus(builder, r, 16 * half), ir.VectorType(I8, 16)) for r in rows]
        pairs = [_joined(builder, *parts[:2]), _joined(builder, *parts[2:])]
        found = _joined(builder, *pairs)
        vectors.append(builder.shuffle_vector(found, found, order))
    return vectors


def _joined(builder: Builder, first: ir.Value, second: ir.Value) -> ir.Value:
    both = ir.Constant(ir.VectorType(I32, 2 * first.type.count), [*range(2 * first.type.count)])
    return builder.shuffle_vector(first, second, both)


def _ask(builder: Builder, later: ir.Value, step: ir.Value, pace: ir.Value) -> None:
    """For `pace` bytes. Four numbers of q8_0 keys are five lines, or fewer; f16 has more."""
    at, most = builder.add(later, builder.mul(step, pace)), I64(LINES * LINE)
    more = builder.icmp_signed(">", pace, most)
    _ask_lines(builder, at, builder.select(more, most, pace))
    with builder.if_then(more):
        _ask_lines(builder, builder.add(at, most), builder.sub(pace, most))


def _ask_lines(builder: Builder, at: ir.Value, size: ir.Value) -> None:
    apart = builder.udiv(size, I64(LINES))
    for i in range(LINES):
        emit_prefetch(builder, builder.add(at, builder.mul(apart, I64(i))), 2)
