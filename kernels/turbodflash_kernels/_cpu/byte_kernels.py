"""Scores of q8_0 keys in whole numbers, by vpdpbusd: four products for each lane at once.

A query is rounded to 16 bits, two digits of 8, its largest number to 127 * 256; keys are the bytes
they are. A block of 32 numbers gives exact sums, whatever their order: one conversion and one
multiply-add with the block's scale follow, block by block. Decoded to float32, sixteen products
take a multiplication of their own, and two instructions before it for each vector of codes.

queries(x, count, width): heads f32 [count, width] become blocks of BLOCK_BYTES, in their own place:
32 upper digits, 32 lower ones, what sums of both begin with, and the float32 that scores are
multiplied by.
scores(queries, q_bytes, count, tile, tile_bytes, room, out, later, size): as in integer_kernels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from turbodflash_kernels._cpu.block_floats import half_lanes
from turbodflash_kernels._cpu.chunk_words import SCORE_BYTES
from turbodflash_kernels._cpu.codes import V_I8
from turbodflash_kernels._cpu.emit import (
    F32,
    I8,
    I32,
    I64,
    V_F32,
    V_I32,
    Builder,
    Values,
    call,
    constant_splat,
    emit_prefetch,
    fma,
    function,
    intrinsic,
    load,
    plus,
    row_addresses,
    splat,
    store,
)
from turbodflash_kernels._cpu.encode_steps import vabs
from turbodflash_kernels._cpu.machines import vpdpbusd
from turbodflash_kernels._cpu.products import loop
from turbodflash_kernels._cpu.simd import f32x16, vload, vmax, vmax_of, vsplat, vsum

BLOCK, STEPS = 32, 8  # numbers; four to a step
BLOCK_BYTES, BEGINNINGS, UNIT = 4 * BLOCK, 2 * BLOCK, 2 * BLOCK + 8  # of a query
SCALE_BYTES, CODE_BYTES = 32, 16 * BLOCK  # of a block of sixteen keys
LARGER = 128  # what vpdpbusd meets is a code and so much more
AT_ONCE = 4  # queries: two digits each of two tiles are sixteen sums
ZERO, MOST, SMALLEST = np.float32(0), np.float32(127 * 256), np.float32(1e-30)


def build(name: str) -> Any:
    return {"queries": queries, "scores": scores}[name]()


# -- queries -------------------------------------------------------------------------------------


def queries() -> Any:
    def kernel(x, count, width):
        for at in range(x, x + 4 * width * count, 4 * width):
            highest, total = vsplat(ZERO), vsplat(ZERO)
            for i in range(at, at + 4 * width, 64):
                size = vabs(vload(i))
                highest, total = vmax(size, highest), total + size
            most, lost = vmax_of(highest), vsum(total) * ZERO  # NaN if one is not finite
            factor = (MOST / most if most > SMALLEST else ZERO) + lost
            unit = np.float32(1) / factor if factor != ZERO else ZERO
            for block in range(at, at + 4 * width, BLOCK_BYTES):
                put_block(block, vsplat(factor), unit)

    return kernel


def _put_block(builder: Builder, at: ir.Value, factor: ir.Value, unit: ir.Value) -> None:
    """Numbers times a factor as digits."""
    halves = [load(builder, plus(builder, at, 64 * half), V_F32) for half in (0, 1)]
    for half, x in enumerate(halves):
        near = call(builder, "llvm.rint.v16f32", V_F32, builder.fmul(x, factor))
        halves[half] = builder.fptosi(near, V_I32)
    eight, upper = constant_splat(8, V_I32), constant_splat(24, V_I32)
    for digit in (1, 0):
        lowest = [builder.ashr(builder.shl(whole, upper), upper) for whole in halves]
        total = call(builder, "llvm.vector.reduce.add.v16i32", I32, builder.add(*lowest))
        begin = builder.mul(total, I32(-LARGER))
        store(builder, begin, plus(builder, at, BEGINNINGS + 4 * digit))
        for half, lanes in enumerate(lowest):
            place = plus(builder, at, BLOCK * digit + 16 * half)
            store(builder, builder.trunc(lanes, ir.VectorType(I8, 16)), place)
        halves = [
            builder.ashr(builder.sub(*pair), eight) for pair in zip(halves, lowest, strict=True)
        ]
    store(builder, unit, plus(builder, at, UNIT))


put_block: Any = intrinsic(
    "digits_of_block", types.void, (types.int64, f32x16, types.float32), _put_block
)


# -- scores --------------------------------------------------------------------------------------


def scores() -> Any:
    one, two, three, four = (_scores(count, False) for count in range(1, AT_ONCE + 1))
    of_one, of_two, of_three, of_four = (_scores(count, True) for count in range(1, AT_ONCE + 1))
    put_in_order = _put_in_order()

    def kernel(queries, q_bytes, count, tile, tile_bytes, room, out, later, size):
        blocks = q_bytes // BLOCK_BYTES
        pace = size // (STEPS * blocks)
        if count == 4:
            four(queries, q_bytes, blocks, tile, tile_bytes, 0, out, later, pace)
        elif count == 3:
            three(queries, q_bytes, blocks, tile, tile_bytes, 0, out, later, pace)
        elif count == 2:
            two(queries, q_bytes, blocks, tile, tile_bytes, 0, out, later, pace)
        elif count == 1:
            one(queries, q_bytes, blocks, tile, tile_bytes, 0, out, later, pace)
        if count <= AT_ONCE:
            return
        put_in_order(tile, tile_bytes, blocks, room, later, pace)
        for j in range(0, count, AT_ONCE):
            q, to, some = queries + q_bytes * j, out + SCORE_BYTES * j, min(count - j, AT_ONCE)
            if some == 4:
                of_four(q, q_bytes, blocks, tile, tile_bytes, room, to, 0, 0)
            elif some == 3:
                of_three(q, q_bytes, blocks, tile, tile_bytes, room, to, 0, 0)
            elif some == 2:
                of_two(q, q_bytes, blocks, tile, tile_bytes, room, to, 0, 0)
            else:
                of_one(q, q_bytes, blocks, tile, tile_bytes, room, to, 0, 0)

    return kernel


def _scores(count: int, ordered: bool) -> Any:
    """Of 32 keys. ordered: they were put in order, into `room`."""

    def emit(builder: Builder, args: Values) -> None:
        q, q_bytes, blocks, tile, tile_bytes, room, out, later, pace = args
        rows = row_addresses(builder, q, q_bytes, count)
        tiles = row_addresses(builder, tile, tile_bytes, 2)

        def block(index: ir.Value, here: ir.Value, totals: Values) -> Values:
            before = builder.mul(index, I64(BLOCK_BYTES))
            mine = [builder.add(row, before) for row in rows]
            by = builder.mul(index, I64(SCALE_BYTES + CODE_BYTES))
            keys = [builder.add(each, by) for each in tiles]

            def codes(step: int) -> Values:
                if ordered:
                    places = [plus(builder, here, CODE_BYTES * t + 64 * step) for t in (0, 1)]
                    return [load(builder, place, V_I8) for place in places]
                _ask(builder, later, builder.add(builder.mul(index, I64(STEPS)), I64(step)), pace)
                return [_in_order(builder, each, step) for each in keys]

            sums = [_digit(builder, row, BEGINNINGS + 4 * d) for row in mine for d in (0, 1)] * 2
            for step in range(STEPS):
                both = codes(step)
                for i, (row, digit) in enumerate((row, d) for row in mine for d in (0, 1)):
                    four = _digit(builder, row, BLOCK * digit + 4 * step)
                    for t, part in enumerate(both):
                        at = 2 * count * t + i
                        sums[at] = vpdpbusd(builder, 512, sums[at], part, four)
            results = []
            for t, each in enumerate(keys):
                scale = half_lanes(builder, each)
                for r in range(count):
                    upper, lower = sums[2 * (count * t + r) :][:2]
                    whole = builder.add(builder.shl(upper, constant_splat(8, V_I32)), lower)
                    units = builder.sitofp(whole, V_F32)
                    results.append(fma(builder, units, scale, totals[count * t + r]))
            return results

        zeros: Values = [ir.Constant(V_F32, None)] * (2 * count)
        totals = loop(builder, blocks, room, I64(2 * CODE_BYTES), zeros, block)
        outs = row_addresses(builder, out, I64(SCORE_BYTES), count)
        for t in (0, 1):
            for row, total, to in zip(rows, totals[count * t :], outs, strict=False):
                unit = splat(builder, load(builder, plus(builder, row, UNIT), F32))
                store(builder, builder.fmul(total, unit), plus(builder, to, 64 * t))

    return function(f"byte_scores_{count}_{ordered}", 9, emit)


def _put_in_order() -> Any:
    def emit(builder: Builder, args: Values) -> None:
        tile, tile_bytes, blocks, room, later, pace = args
        tiles = row_addresses(builder, tile, tile_bytes, 2)

        def block(index: ir.Value, to: ir.Value, nothing: Values) -> Values:
            by = builder.mul(index, I64(SCALE_BYTES + CODE_BYTES))
            for step in range(STEPS):
                _ask(builder, later, builder.add(builder.mul(index, I64(STEPS)), I64(step)), pace)
                for t, each in enumerate(tiles):
                    place = plus(builder, to, CODE_BYTES * t + 64 * step)
                    store(builder, _in_order(builder, builder.add(each, by), step), place)
            return nothing

        loop(builder, blocks, room, I64(2 * CODE_BYTES), [], block)

    return function("bytes_in_order", 6, emit)


def _in_order(builder: Builder, block: ir.Value, step: int) -> ir.Value:
    """Four codes of each of sixteen keys, side by side, and each so much LARGER."""
    found = load(builder, plus(builder, block, SCALE_BYTES + 64 * step), V_I8)
    order = ir.Constant(ir.VectorType(I32, 64), [16 * (i % 4) + i // 4 for i in range(64)])
    sorted_ = builder.shuffle_vector(found, found, order)
    return builder.xor(sorted_, constant_splat(-LARGER, V_I8))


def _digit(builder: Builder, row: ir.Value, at: int) -> ir.Value:
    """The word there in all lanes: four digits, or what a sum begins with."""
    return splat(builder, load(builder, plus(builder, row, at), I32))


def _ask(builder: Builder, later: ir.Value, step: ir.Value, pace: ir.Value) -> None:
    """For up to four lines."""
    at, quarter = builder.add(later, builder.mul(step, pace)), builder.lshr(pace, I64(2))
    for i in range(4):
        emit_prefetch(builder, builder.add(at, builder.mul(quarter, I64(i))), 2)
