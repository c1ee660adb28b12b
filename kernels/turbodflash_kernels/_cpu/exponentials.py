"""The exponential function on vectors, and a cheaper one for the weights of a softmax."""

from __future__ import annotations

from llvmlite import ir

from turbodflash_kernels._cpu.emit import (
    LANES,
    V_F32,
    V_I32,
    Builder,
    call,
    constant_splat,
    fma,
    intrinsic,
)
from turbodflash_kernels._cpu.simd import f32x16

# vexp: exp(x) = 2^n * p(r), n = round(x / ln 2), r = x - n ln 2 in two steps; p is the Taylor
# series to degree 7, good to one unit in the last place on |r| <= ln(2) / 2.
_LOG2E, _LN2_HIGH, _LN2_LOW = 1.4426950408889634, 0.693359375, -2.12194440e-4
_SERIES = (1 / 5040, 1 / 720, 1 / 120, 1 / 24, 1 / 6, 0.5, 1.0, 1.0)
_SMALLEST, _LARGEST = -87.33654, 88.3762


def _emit_exp(builder: Builder, x: ir.Value) -> ir.Value:
    def vector(value: float) -> ir.Constant:
        return constant_splat(value, V_F32)

    inside = builder.select(builder.fcmp_ordered(">", x, vector(_LARGEST)), vector(_LARGEST), x)
    tiny = builder.fcmp_ordered("<", inside, vector(_SMALLEST))
    inside = builder.select(tiny, vector(_SMALLEST), inside)
    n = call(builder, f"llvm.rint.v{LANES}f32", V_F32, builder.fmul(inside, vector(_LOG2E)))
    r = fma(builder, n, vector(-_LN2_HIGH), inside)
    r = fma(builder, n, vector(-_LN2_LOW), r)
    p: ir.Value = vector(_SERIES[0])
    for coefficient in _SERIES[1:]:
        p = fma(builder, p, r, vector(coefficient))
    exponent = builder.add(builder.fptosi(n, V_I32), constant_splat(127, V_I32))
    power = builder.bitcast(builder.shl(exponent, constant_splat(23, V_I32)), V_F32)
    return builder.select(tiny, vector(0.0), builder.fmul(p, power))


# vdecay: exp(x) = 2^y = 2^n * p(r), y = x / ln 2, n = round(y), r = y - n, which is exact; p is the
# best of its degree with p(0) = 1, good to two units in the last place. n stands in the lowest bits
# of y + _ROUND. Below 2^-126 come numbers that are smaller still, and 0 from 2^-127 on, where p is
# 1 and the exponent 0.
_ROUND = 1.5 * 2**23
_LEAST_POWER = -127.0
_POWERS = (
    *(0.001326472731307149, 0.009671512991189957, 0.05550733581185341),
    *(0.24022242426872253, 0.6931470036506653, 1.0),
)


def _emit_decay(builder: Builder, x: ir.Value) -> ir.Value:
    """exp of what is nowhere above 0, off by 2^-23 or less: what is small may lose more of its own
    digits. For weights of a sum in which there is a 1."""
    y = builder.fmul(x, constant_splat(_LOG2E, V_F32))
    least = constant_splat(_LEAST_POWER, V_F32)
    y = builder.select(builder.fcmp_ordered(">", least, y), least, y)  # what is no number stays so
    rounded = builder.fadd(y, constant_splat(_ROUND, V_F32))
    r = builder.fsub(y, builder.fsub(rounded, constant_splat(_ROUND, V_F32)))
    p: ir.Value = constant_splat(_POWERS[0], V_F32)
    for coefficient in _POWERS[1:]:
        p = fma(builder, p, r, constant_splat(coefficient, V_F32))
    n = builder.shl(builder.bitcast(rounded, V_I32), constant_splat(23, V_I32))
    return builder.bitcast(builder.add(builder.bitcast(p, V_I32), n), V_F32)


vexp = intrinsic("vexp", f32x16, (f32x16,), _emit_exp)
vdecay = intrinsic("vdecay", f32x16, (f32x16,), _emit_decay)  # exp of numbers not above 0
