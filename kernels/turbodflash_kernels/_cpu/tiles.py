"""The inner loop of a matrix product: sixteen weight rows times a few activation rows.

Written as Python that emits LLVM IR, because its unrolling depends on the weight format, on the
number of activation rows and on the instruction set. A block gives exact integers (see dots.py),
then a few float steps, in the order of the blocks: a row's result has the same bits whatever rows
are computed beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from llvmlite import ir

from turbodflash_kernels._cpu import layout, streams
from turbodflash_kernels._cpu.codes import Planes, planes_of
from turbodflash_kernels._cpu.dots import block_sums, decode_block, decoded_sums
from turbodflash_kernels._cpu.emit import (
    F16,
    F32,
    I8,
    I16,
    I32,
    I64,
    V_F32,
    V_I32,
    Builder,
    Values,
    accumulators,
    constant_splat,
    emit_prefetch,
    fma,
    function,
    load,
    offset,
    plus,
    repeat,
    row_addresses,
    splat,
    store,
    store_rows,
)
from turbodflash_kernels._cpu.machines import MACHINES
from turbodflash_kernels._cpu.rows import INPUTS, MIDDLES, SUM, UNIT, ZEROS
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
            sums = block_sums(builder, fmt, isa, planes, here)
            floats = _Floats(
                builder, fmt, *_factors(builder, view.stored, address, above[0]), view.lift
            )
            for row, parts, slot in zip(here, sums, totals, strict=True):
                builder.store(floats.added(builder.load(slot, typ=V_F32), row, parts), slot)

        each_block(builder, view.stored, [weights], blocks, block)
        store_rows(builder, totals, out, out_stride)

    return function(f"tile_{layout.spec_name(fmt)}_{isa}_{rows}", 9, emit)


DECODED_BYTES = 2048  # of a block of all tiles, at most: 512 codes of each, and as many signs
CODE_SUMS_AT = DECODED_BYTES  # of each tile, followed by two kinds of factors for two halves
KNOWN_BYTES = 5 * 64
TOTAL_BYTES = layout.PANEL * 64 + 2048  # of a tile; whole pages apart, stores would hold up loads
TOTALS_AT = CODE_SUMS_AT + 2 * KNOWN_BYTES


def grouped_tile(view: View, isa: str) -> Any:
    """tile(weights, apart, lower, lines, row_stride, block_stride, blocks, groups, work, ahead): as
    `quantised_tile`, for `groups` times four activation rows, and for as many tiles as the machine
    takes abreast, which lie `apart`; 0 for no second one.

    A block is decoded once, into `work`, for all rows. Results of tile t: f32 [rows, 16] at
    work + TOTALS_AT + t * TOTAL_BYTES.
    """
    fmt, abreast = view.format, range(MACHINES[isa].abreast)
    kinds, halves = (2 if fmt.affine else 1), layout.BLOCK // fmt.block

    def emit(builder: Builder, args: Values) -> None:
        weights, apart, lower, lines, row_stride, block_stride, blocks, groups, work, ahead = args
        totals, decoded, known = (
            [plus(builder, work, first + size * t) for t in abreast]
            for first, size in (
                (TOTALS_AT, TOTAL_BYTES),
                (0, DECODED_BYTES // len(abreast)),
                (CODE_SUMS_AT, KNOWN_BYTES),
            )
        )
        lower_apart = builder.select(
            builder.icmp_signed("==", apart, I64(0)),
            I64(0),
            builder.mul(blocks, I64(streams.LOWER_BYTES)),
        )

        def slots(tile: int, g: ir.Value) -> Values:
            first = offset(builder, totals[tile], g, 64 * layout.GROUP)
            return row_addresses(builder, first, I64(64), layout.GROUP)

        def clear(g: ir.Value) -> None:
            for t in abreast:
                for slot in slots(t, g):
                    store(builder, ir.Constant(V_F32, None), slot)

        def block(addresses: Values, index: ir.Value, above: list[Above]) -> None:
            for t, address in enumerate(addresses):
                of_tile = builder.add(lower, builder.mul(lower_apart, I64(t)))
                planes = _planes(builder, view, address, of_tile, index)
                _ask_ahead(builder, view, address, of_tile, index, ahead)
                code_sums = decode_block(builder, fmt, isa, planes, decoded[t])
                scales, minima = _factors(builder, view.stored, address, above[t])
                for i, lanes in enumerate((code_sums, *scales, *minima)):
                    store(builder, lanes, plus(builder, known[t], 64 * i))

            of_block = builder.add(lines, builder.mul(index, block_stride))
            group_stride = builder.mul(row_stride, I64(layout.GROUP))

            def group(g: ir.Value) -> None:
                first = builder.add(of_block, builder.mul(g, group_stride))
                here = row_addresses(builder, first, row_stride, layout.GROUP)
                code_sums = [load(builder, at, V_I32) for at in known]
                sums = decoded_sums(builder, fmt, isa, decoded, here, code_sums)
                for t in abreast:
                    factors = [
                        load(builder, plus(builder, known[t], 64 * i), V_F32)
                        for i in range(1, 1 + kinds * halves)
                    ]
                    floats = _Floats(builder, fmt, factors[:halves], factors[halves:], view.lift)
                    for row, parts, slot in zip(here, sums, slots(t, g), strict=True):
                        total = floats.added(load(builder, slot, V_F32), row, parts[t])
                        store(builder, total, slot)

            repeat(builder, groups, group)

        repeat(builder, groups, clear)
        first = [builder.add(weights, builder.mul(apart, I64(t))) for t in abreast]
        each_block(builder, view.stored, first, blocks, block)

    return function(f"tile_{layout.spec_name(fmt)}_{isa}_grouped", 10, emit)


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


Above: TypeAlias = tuple[ir.Value, ...]
"""Super-block scales, then minima, sixteen lanes each; empty for one-level formats."""


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
                _raised(builder, fmt, half_lanes(builder, plus(builder, base, 32 * j)))
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


def half_lanes(builder: Builder, address: ir.Value) -> ir.Value:
    return builder.fpext(load(builder, address, ir.VectorType(F16, 16)), V_F32)


def _raised(builder: Builder, fmt: Format, lanes: ir.Value) -> ir.Value:
    if not fmt.exponent:
        return lanes
    return builder.fmul(lanes, constant_splat(2.0**fmt.exponent, V_F32))


def _factors(
    builder: Builder, fmt: Format, address: ir.Value, above: Above
) -> tuple[Values, Values]:
    """Scales, and minima if there are any, of a block or of its halves."""
    parts = layout.BLOCK // fmt.block

    def read(kind: int) -> Values:
        return [_factor(builder, fmt, address, kind, part, above) for part in range(parts)]

    return read(0), read(1) if fmt.affine else []


def _factor(
    builder: Builder, fmt: Format, address: ir.Value, kind: int, part: int, above: Above
) -> ir.Value:
    """Sixteen block scales or minima as float32."""
    at = plus(builder, address, layout.factor_offset(fmt, kind, part))
    if not above and not fmt.powers:
        return half_lanes(builder, at)
    lanes = builder.sext(load(builder, at, ir.VectorType(I8, 16)), V_I32)
    if fmt.powers:
        return _powers_of_two(builder, lanes)
    if fmt.nibbles:
        lanes = builder.lshr(lanes, constant_splat(4 * kind, V_I32))
        lanes = builder.and_(lanes, constant_splat(15, V_I32))
    return builder.fmul(above[kind], builder.sitofp(lanes, V_F32))


def _powers_of_two(builder: Builder, exponents: ir.Value) -> ir.Value:
    """2 ** exponent as float32, for -128 to 127; the lowest two are subnormal."""
    raised = builder.add(exponents, constant_splat(127, V_I32))
    normal = builder.shl(raised, constant_splat(23, V_I32))
    small = builder.shl(
        constant_splat(1 << 21, V_I32), builder.add(raised, constant_splat(1, V_I32))
    )
    is_small = builder.icmp_signed("<", raised, constant_splat(1, V_I32))
    return builder.bitcast(builder.select(is_small, small, normal), V_F32)


@dataclass(slots=True)
class _Floats:
    """The float steps after a block's integers."""

    builder: Builder
    fmt: Format
    scales: Values
    minima: Values
    lift: float

    def added(self, total: ir.Value, row: ir.Value, sums: Values) -> ir.Value:
        """total + unit * sum * scale (+ minimum * sum of x) for a block, or for each half."""
        builder = self.builder
        unit = splat(builder, load(builder, plus(builder, row, UNIT), F32))
        for part, (product, scale) in enumerate(zip(sums, self.scales, strict=True)):
            total = fma(builder, self._value(product, row, unit), scale, total)
            if self.minima:
                total = fma(builder, self.minima[part], self._value_sum(row, part, unit), total)
        return total

    def _value(self, product: ir.Value, row: ir.Value, unit: ir.Value) -> ir.Value:
        builder, units = self.builder, self.builder.sitofp(product, V_F32)
        if not self.lift:
            return builder.fmul(units, unit)
        lifted = builder.fmul(load(builder, plus(builder, row, SUM), F32), F32(self.lift))
        return fma(builder, units, unit, splat(builder, lifted))

    def _value_sum(self, row: ir.Value, part: int, unit: ir.Value) -> ir.Value:
        """The sum of the activations that share a minimum."""
        builder = self.builder
        if self.fmt.block == layout.BLOCK:
            return splat(builder, load(builder, plus(builder, row, SUM), F32))
        weighted = load(builder, plus(builder, row, ZEROS[part]), I32)
        middle = builder.sext(load(builder, plus(builder, row, MIDDLES + 2 * part), I16), I32)
        units = builder.add(weighted, builder.mul(middle, I32(INPUTS)))
        return builder.fmul(builder.sitofp(splat(builder, units), V_F32), unit)
