"""The inner loop of a matrix product: sixteen weight rows times a few activation rows.

Written as Python that emits LLVM IR, because its unrolling depends on the weight format, on the
number of activation rows and on the instruction set. A block gives exact integers (see dots.py),
then a few float steps, in the order of the blocks: a row's result has the same bits whatever rows
are computed beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from turbodflash_kernels._cpu import layout, streams
from turbodflash_kernels._cpu.block_floats import Above, Floats, Known, half_lanes, raised
from turbodflash_kernels._cpu.codes import Planes, planes_of
from turbodflash_kernels._cpu.dots import DecodedTiles, block_sums, decode_block, decoded_sums
from turbodflash_kernels._cpu.emit import (
    I64,
    V_F32,
    Builder,
    Values,
    accumulators,
    emit_prefetch,
    function,
    load,
    offset,
    plus,
    repeat,
    row_addresses,
    store,
    store_rows,
)
from turbodflash_kernels._cpu.isa import prefetches_best_alone
from turbodflash_kernels._cpu.machines import MACHINES
from turbodflash_kernels._cpu.streams import View
from turbodflash_kernels.planar import SUPER_BLOCK, Format


def quantised_tile(view: View, isa: str, rows: int) -> Any:
    """tile(weights, lower, lines, row_stride, block_stride, blocks, out, out_stride, ahead):
    sixteen weight rows times `rows` activation rows, over all blocks.

    lower: where there are two streams, the second (see streams.py). lines: of the first row's first
    block (see rows.py). ahead: how far on to prefetch weights. Results of a row go to out + row *
    out_stride.
    """
    fmt = view.format

    def emit(builder: Builder, args: Values) -> None:
        weights, lower, lines, row_stride, block_stride, blocks, out, out_stride, ahead = args
        totals = accumulators(builder, rows)

        def block(addresses: Values, index: ir.Value, above: list[Above]) -> None:
            (address,) = addresses
            planes = _planes(builder, view, address, lower, index)
            _ask_ahead(builder, view, address, lower, index, ahead)
            first = builder.add(lines, builder.mul(index, block_stride))
            here = row_addresses(builder, first, row_stride, rows)
            sums, code_sums = block_sums(builder, fmt, isa, planes, here)
            floats = Floats.of(builder, view, address, above[0], code_sums)
            for row, parts, slot in zip(here, sums, totals, strict=True):
                known = Known(builder, row)
                builder.store(floats.added(builder.load(slot, typ=V_F32), known, parts), slot)

        each_block(builder, view.stored, [weights], blocks, block)
        store_rows(builder, totals, out, out_stride)

    return function(f"tile_{layout.spec_name(fmt)}_{isa}_{rows}", 9, emit)


DECODED_BYTES = 2048  # of a block, at most: 512 codes, and as many signs
KNOWN_AT = DECODED_BYTES  # sums of weights, and two kinds of factors for two halves
RESULTS_AT = KNOWN_AT + 5 * 64
FEW, SHORT = 2, 16384  # rows, and bytes of a tile, with which the next two are asked for meanwhile
NEAR = 3072  # else what comes so many bytes on: two tiles would not stay in the first cache
RESULT_BYTES = layout.PANEL * 64 + 2048  # of a tile; whole pages apart, stores would hold up loads


def abreast_tiles(view: View, isa: str) -> Any:
    """tiles(weights, apart, lower, lines, row_stride, block_stride, blocks, rows, work, ahead): as
    `quantised_tile`, for two tiles and any number of rows; see row_kernels.

    The codes of a block fill half of the registers, and row after row passes by: two at a time, so
    that additions do not wait for each other. ahead: bytes from here to the tiles that come next.
    """
    fmt, abreast = view.format, range(MACHINES[isa].abreast)
    size = layout.block_bytes(view.stored)
    near = max(NEAR // size, 1)  # blocks

    def emit(builder: Builder, args: Values) -> None:
        weights, apart, lower, lines, row_stride, block_stride, blocks, rows, work, ahead = args
        totals = [plus(builder, work, RESULTS_AT + RESULT_BYTES * t) for t in abreast]
        lower_apart = builder.select(
            builder.icmp_signed("==", apart, I64(0)),
            I64(0),
            builder.mul(blocks, I64(streams.LOWER_BYTES)),
        )

        before = builder.sub(blocks, I64(near))
        across = builder.sub(ahead, builder.mul(before, I64(size)))
        short = builder.icmp_signed("<=", blocks, I64(SHORT // size))
        waiting = builder.and_(builder.icmp_signed("<=", rows, I64(FEW)), short)
        far = builder.or_(waiting, builder.icmp_signed("<=", before, I64(0)))
        alone = builder.and_(builder.icmp_signed("==", rows, I64(1)), builder.not_(short))

        def distance(index: ir.Value) -> ir.Value:
            """How far on to ask for weights: `near` blocks, in the end those of the next tile; 0,
            which asks for nothing new, where the processor does it better."""
            inside = builder.icmp_signed("<", index, before)
            on = builder.select(inside, I64(near * size), across)
            if prefetches_best_alone():
                on = builder.select(alone, I64(0), on)
            return builder.select(far, ahead, on)

        def clear(row: ir.Value) -> None:
            for total in totals:
                store(builder, ir.Constant(V_F32, None), offset(builder, total, row, 64))

        def block(addresses: Values, index: ir.Value, above: list[Above]) -> None:
            planes, on = [], distance(index)
            for t, address in enumerate(addresses):
                of_tile = builder.add(lower, builder.mul(lower_apart, I64(t)))
                planes.append(_planes(builder, view, address, of_tile, index))
                _ask_ahead(builder, view, address, of_tile, index, on)
            decoded = DecodedTiles(builder, fmt, isa, planes)
            floats = [
                Floats.of(builder, view, *of_tile)
                for of_tile in zip(addresses, above, decoded.code_sums, strict=True)
            ]
            of_block = builder.add(lines, builder.mul(index, block_stride))

            def add(rows: Values) -> None:
                here = [builder.add(of_block, builder.mul(row, row_stride)) for row in rows]
                sums = []
                for row, line, of_row in zip(rows, here, decoded.sums(here), strict=True):
                    emit_prefetch(builder, builder.add(line, block_stride))
                    known = Known(builder, line)
                    for each, total, parts in zip(floats, totals, of_row, strict=True):
                        slot = offset(builder, total, row, 64)
                        sums.append((each.added(load(builder, slot, V_F32), known, parts), slot))
                for total, slot in sums:
                    store(builder, total, slot)

            def two_rows(pair: ir.Value) -> None:
                first = builder.shl(pair, I64(1))
                add([first, builder.add(first, I64(1))])

            pairs = builder.lshr(rows, I64(1))
            with builder.if_then(builder.icmp_signed(">", pairs, I64(0))):
                repeat(builder, pairs, two_rows)
            with builder.if_then(builder.trunc(rows, ir.IntType(1))):
                add([builder.sub(rows, I64(1))])

        repeat(builder, rows, clear)
        first = [builder.add(weights, builder.mul(apart, I64(t))) for t in abreast]
        each_block(builder, view.stored, first, blocks, block)

    return function(f"tile_{layout.spec_name(fmt)}_{isa}_abreast", 10, emit)


def grouped_tile(view: View, isa: str) -> Any:
    """tile(weights, lower, lines, row_stride, block_stride, blocks, groups, work, ahead): as
    `quantised_tile`, for `groups` times four activation rows.

    A block is decoded once, into `work`, for all rows. Results: f32 [rows, 16] at work +
    RESULTS_AT.
    """
    fmt = view.format

    def emit(builder: Builder, args: Values) -> None:
        weights, lower, lines, row_stride, block_stride, blocks, groups, work, ahead = args
        known, totals = plus(builder, work, KNOWN_AT), plus(builder, work, RESULTS_AT)

        def slots(g: ir.Value) -> Values:
            first = offset(builder, totals, g, 64 * layout.GROUP)
            return row_addresses(builder, first, I64(64), layout.GROUP)

        def clear(g: ir.Value) -> None:
            for slot in slots(g):
                store(builder, ir.Constant(V_F32, None), slot)

        def block(addresses: Values, index: ir.Value, above: list[Above]) -> None:
            (address,) = addresses
            planes = _planes(builder, view, address, lower, index)
            _ask_ahead(builder, view, address, lower, index, ahead)
            code_sums = decode_block(builder, fmt, isa, planes, work)
            made = Floats.of(builder, view, address, above[0], code_sums)
            made.put(known)

            of_block = builder.add(lines, builder.mul(index, block_stride))
            group_stride = builder.mul(row_stride, I64(layout.GROUP))

            def group(g: ir.Value) -> None:
                first = builder.add(of_block, builder.mul(g, group_stride))
                here = row_addresses(builder, first, row_stride, layout.GROUP)
                sums = decoded_sums(builder, fmt, isa, work, here)
                floats = made.back(known)
                for row, parts, slot in zip(here, sums, slots(g), strict=True):
                    total = floats.added(load(builder, slot, V_F32), Known(builder, row), parts)
                    store(builder, total, slot)

            repeat(builder, groups, group)

        repeat(builder, groups, clear)
        each_block(builder, view.stored, [weights], blocks, block)

    return function(f"tile_{layout.spec_name(fmt)}_{isa}_grouped", 9, emit)


def _planes(
    builder: Builder, view: View, address: ir.Value, lower: ir.Value, index: ir.Value
) -> Planes:
    """Of a block's codes."""
    planes = planes_of(builder, view.stored.bits, address) if view.upper else []
    if not view.lower:
        return planes
    second = offset(builder, lower, index, streams.LOWER_BYTES)
    return [*planes_of(builder, streams.LOWER.bits, second), *planes]


def _ask_ahead(
    builder: Builder,
    view: View,
    address: ir.Value,
    lower: ir.Value,
    index: ir.Value,
    ahead: ir.Value,
) -> None:
    """For what comes `ahead` bytes behind a block, and for as many blocks of the second stream."""
    size = layout.block_bytes(view.stored)
    scales = layout.code_bytes(view.stored)
    _ask(builder, builder.add(address, ahead), range(0 if view.upper else scales, size, 64))
    if view.lower:
        blocks = builder.add(index, builder.sdiv(ahead, I64(size)))
        second = offset(builder, lower, blocks, streams.LOWER_BYTES)
        _ask(builder, second, range(0, streams.LOWER_BYTES, 64))


def _ask(builder: Builder, at: ir.Value, lines: range) -> None:
    for line in lines:
        emit_prefetch(builder, plus(builder, at, line))


def each_block(
    builder: Builder,
    fmt: Format,
    tiles: Values,
    blocks: ir.Value,
    body: Callable[[Values, ir.Value, list[Above]], None],
) -> None:
    """Emit body(addresses, index, above) for all blocks of some tiles, abreast."""
    size = layout.block_bytes(fmt)

    def places(bases: Values, index: ir.Value, stride: int) -> Values:
        return [offset(builder, base, index, stride) for base in bases]

    if not fmt.two_level:
        repeat(builder, blocks, lambda b: body(places(tiles, b, size), b, [()] * len(tiles)))
        return
    per_super = SUPER_BLOCK // layout.BLOCK
    header = layout.header_bytes(fmt)

    def super_block(i: ir.Value) -> None:
        bases = places(tiles, i, header + per_super * size)
        above = [
            tuple(
                raised(builder, fmt, half_lanes(builder, plus(builder, base, 32 * j)))
                for j in range(2 if fmt.affine else 1)
            )
            for base in bases
        ]
        first = builder.mul(i, I64(per_super))
        behind = [plus(builder, base, header) for base in bases]

        def inner(j: ir.Value) -> None:
            body(places(behind, j, size), builder.add(first, j), above)

        repeat(builder, I64(per_super), inner)

    repeat(builder, builder.lshr(blocks, I64(3)), super_block)
