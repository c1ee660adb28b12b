"""Curves that activations go through, on vectors, for kernels of Numba."""

from __future__ import annotations

import numba
import numpy as np
from llvmlite import ir

from turbodflash_kernels._cpu.emit import V_F32, V_I32, Builder, constant_splat, fma, intrinsic
from turbodflash_kernels._cpu.exponentials import vexp
from turbodflash_kernels._cpu.simd import f32x16, vfma, vsplat

inline = numba.njit(error_model="numpy", forceinline=True)


@inline
def silu(x):
    return x / (vsplat(np.float32(1.0)) + vexp(vsplat(np.float32(0.0)) - x))


@inline
def gelu(x):
    """The tanh form: x * sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3)."""
    cubed = x * x * x
    u = vfma(vsplat(np.float32(0.044715)), cubed, x) * vsplat(np.float32(1.5957691216057308))
    return x / (vsplat(np.float32(1.0)) + vexp(vsplat(np.float32(0.0)) - u))


@inline
def sigmoid(x):
    one = vsplat(np.float32(1.0))
    return one / (one + vexp(vsplat(np.float32(0.0)) - x))


ACTIVATIONS = {"silu": silu, "gelu": gelu, "sigmoid": sigmoid}

# tanh(x) = x + x^3 p(x^2) below 0.625, where (1 - e) / (1 + e) would lose the small numbers; p is
# within 5e-8 of the best
_SMALL = 0.625
_SERIES = (-0.00609671416, 0.020997179, -0.0538509096, 0.133327697, -0.333333289)


def _emit_magnitude(builder: Builder, x: ir.Value) -> ir.Value:
    bits = builder.and_(builder.bitcast(x, V_I32), constant_splat(0x7FFFFFFF, V_I32))
    return builder.bitcast(bits, V_F32)


def _emit_choose(builder: Builder, x: ir.Value, small: ir.Value, large: ir.Value) -> ir.Value:
    """Of each lane what belongs to its size, `large` with the sign of x."""
    sign = builder.and_(builder.bitcast(x, V_I32), constant_splat(-(2**31), V_I32))
    signed = builder.bitcast(builder.or_(builder.bitcast(large, V_I32), sign), V_F32)
    limit = constant_splat(_SMALL, V_F32)
    is_small = builder.fcmp_ordered("<", _emit_magnitude(builder, x), limit)
    return builder.select(is_small, small, signed)


def _emit_series(builder: Builder, x: ir.Value) -> ir.Value:
    square = builder.fmul(x, x)
    p: ir.Value = constant_splat(_SERIES[0], V_F32)
    for coefficient in _SERIES[1:]:
        p = fma(builder, p, square, constant_splat(coefficient, V_F32))
    return fma(builder, builder.fmul(p, square), x, x)


_magnitude = intrinsic("vmagnitude", f32x16, (f32x16,), _emit_magnitude)
_choose = intrinsic("vchoose", f32x16, (f32x16, f32x16, f32x16), _emit_choose)
_series = intrinsic("vtanh_small", f32x16, (f32x16,), _emit_series)


@inline
def tanh(x):
    one = vsplat(np.float32(1.0))
    less = vexp(vsplat(np.float32(-2.0)) * _magnitude(x))
    return _choose(x, _series(x), (one - less) / (one + less))
