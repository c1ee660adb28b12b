"""Scales and minima of a block, and the float steps that follow its integers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from llvmlite import ir

from turbodflash_kernels._cpu import layout
from turbodflash_kernels._cpu.codes import zero_of
from turbodflash_kernels._cpu.emit import (
    F16,
    F32,
    I8,
    V_F32,
    V_I32,
    Builder,
    Values,
    constant_splat,
    fma,
    load,
    plus,
    splat,
    store,
)
from turbodflash_kernels._cpu.rows import MIDDLE, SUM, SUMS, UNIT
from turbodflash_kernels._cpu.streams import View
from turbodflash_kernels.planar import Format

Above: TypeAlias = tuple[ir.Value, ...]
"""Super-block scales, then minima, sixteen lanes each; empty for one-level formats."""


def half_lanes(builder: Builder, address: ir.Value) -> ir.Value:
    return builder.fpext(load(builder, address, ir.VectorType(F16, 16)), V_F32)


def raised(builder: Builder, fmt: Format, lanes: ir.Value) -> ir.Value:
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


class Known:
    """What is known of a row's block of activations, in registers: whatever multiplies it, it is
    loaded once."""

    def __init__(self, builder: Builder, line: ir.Value) -> None:
        self._builder, self._line = builder, line
        self._words: dict[int, ir.Value] = {}

    def word(self, at: int) -> ir.Value:
        """A float32 of the line in all lanes."""
        if at not in self._words:
            number = load(self._builder, plus(self._builder, self._line, at), F32)
            self._words[at] = splat(self._builder, number)
        return self._words[at]


@dataclass(slots=True)
class Floats:
    """The float steps after a block's integers: sixteen lanes each, of the block or its halves.

    weights: sums of all that a lane's row of weights has in the block.
    """

    builder: Builder
    lift: float
    weights: ir.Value
    scales: Values
    minima: Values

    @classmethod
    def of(
        cls, builder: Builder, view: View, address: ir.Value, above: Above, code_sums: Values
    ) -> Floats:
        """Of a block, whose codes add up to so much."""
        scales, minima = _factors(builder, view.stored, address, above)
        inputs = layout.BLOCK // len(scales)
        weights: ir.Value = ir.Constant(V_F32, None)
        zero = constant_splat(inputs * (view.lift - zero_of(view.format)), V_F32)
        for scale, code_sum in zip(scales, code_sums, strict=True):
            codes = builder.fadd(builder.sitofp(code_sum, V_F32), zero)
            weights = fma(builder, scale, codes, weights)
        for minimum in minima:
            weights = fma(builder, minimum, constant_splat(float(inputs), V_F32), weights)
        return cls(builder, view.lift, weights, scales, minima)

    def put(self, at: ir.Value) -> None:
        """Leave the lanes there, for `back`."""
        for i, lanes in enumerate((self.weights, *self.scales, *self.minima)):
            store(self.builder, lanes, plus(self.builder, at, 64 * i))

    def back(self, at: ir.Value) -> Floats:
        """The same, with what was put there."""
        count, parts = 1 + len(self.scales) + len(self.minima), len(self.scales)
        weights, *rest = (
            load(self.builder, plus(self.builder, at, 64 * i), V_F32) for i in range(count)
        )
        return replace(self, weights=weights, scales=rest[:parts], minima=rest[parts:])

    def added(self, total: ir.Value, row: Known, sums: Values) -> ir.Value:
        """total + the block's sum of w * x: middle * weights + unit * scale * sum (+ minimum * sum
        of x - middle) of the block, or of each half."""
        total = fma(self.builder, self.weights, row.word(MIDDLE), total)
        units = [self.builder.sitofp(product, V_F32) for product in sums]
        if len(units) == 1:
            (scale,) = self.scales
            total = fma(self.builder, self._value(units[0], row), scale, total)
        else:
            first, second = self.scales
            scaled = fma(self.builder, units[1], second, self.builder.fmul(units[0], first))
            total = fma(self.builder, scaled, row.word(UNIT), total)
        for minimum, at in zip(self.minima, [SUM] if len(units) == 1 else SUMS, strict=False):
            total = fma(self.builder, minimum, row.word(at), total)
        return total

    def _value(self, units: ir.Value, row: Known) -> ir.Value:
        if not self.lift:
            return self.builder.fmul(units, row.word(UNIT))
        lifted = self.builder.fmul(row.word(SUM), constant_splat(self.lift, V_F32))
        return fma(self.builder, units, row.word(UNIT), lifted)
