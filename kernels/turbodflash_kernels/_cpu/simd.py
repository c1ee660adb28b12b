"""Vectors and raw memory for kernels that Numba compiles.

Addresses are int64 byte addresses: kernels get them from a tape, not from arrays. A vector has 16
lanes of float32; LLVM maps it to one AVX-512, two AVX2 or four NEON registers. `vfma` is one
rounding where the machine has it. Horizontal sums add in a fixed tree, so a result's bits never
depend on anything but its inputs.
"""

from __future__ import annotations

import operator
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import lower_builtin, models, register_model

from turbodflash_kernels._cpu.emit import (
    F16,
    F32,
    I8,
    I16,
    I32,
    I64,
    LANES,
    V_F32,
    V_I32,
    Builder,
    Emit,
    call,
    constant_splat,
    emit_prefetch,
    fma,
    intrinsic,
    load,
    pointer,
    splat,
    store,
)


class Vector(types.Type):
    """The Numba type of 16 lanes of float32."""

    def __init__(self) -> None:
        super().__init__(name="f32x16")


f32x16 = Vector()


@register_model(Vector)
class VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, vector: Vector) -> None:
        super().__init__(manager, vector, V_F32)


def _lower_operator(function: Any, instruction: str) -> None:
    @infer_global(function)
    class _(ConcreteTemplate):
        cases = [signature(f32x16, f32x16, f32x16)]  # noqa: RUF012 (Numba's own spelling)

    @lower_builtin(function, f32x16, f32x16)
    def _lower(context: Any, builder: Builder, sig: Any, args: Any) -> ir.Value:
        return getattr(builder, instruction)(*args)


_lower_operator(operator.add, "fadd")
_lower_operator(operator.sub, "fsub")
_lower_operator(operator.mul, "fmul")
_lower_operator(operator.truediv, "fdiv")

_int, _float = types.int64, types.float32


def _emit_load(type_: ir.Type) -> Emit:
    return lambda builder, address: load(builder, address, type_)


def _emit_load_wide(narrow: ir.Type, widen: str) -> Emit:
    def emit(builder: Builder, address: ir.Value) -> ir.Value:
        return getattr(builder, widen)(load(builder, address, narrow), I64)

    return emit


def _emit_store(builder: Builder, address: ir.Value, value: ir.Value) -> None:
    store(builder, value, address)


def _emit_store_narrow(narrow: ir.Type) -> Emit:
    def emit(builder: Builder, address: ir.Value, value: ir.Value) -> None:
        store(builder, builder.trunc(value, narrow), address)

    return emit


load_f32 = intrinsic("load_f32", _float, (_int,), _emit_load(F32))
load_i64 = intrinsic("load_i64", _int, (_int,), _emit_load(I64))
load_i32 = intrinsic("load_i32", _int, (_int,), _emit_load_wide(I32, "sext"))
load_i8 = intrinsic("load_i8", _int, (_int,), _emit_load_wide(I8, "sext"))
load_u8 = intrinsic("load_u8", _int, (_int,), _emit_load_wide(I8, "zext"))
load_u16 = intrinsic("load_u16", _int, (_int,), _emit_load_wide(I16, "zext"))
store_f32 = intrinsic("store_f32", types.void, (_int, _float), _emit_store)
store_i64 = intrinsic("store_i64", types.void, (_int, _int), _emit_store)
store_i32 = intrinsic("store_i32", types.void, (_int, _int), _emit_store_narrow(I32))
store_i16 = intrinsic("store_i16", types.void, (_int, _int), _emit_store_narrow(I16))
store_i8 = intrinsic("store_i8", types.void, (_int, _int), _emit_store_narrow(I8))
vload = intrinsic("vload", f32x16, (_int,), _emit_load(V_F32))
vstore = intrinsic("vstore", types.void, (_int, f32x16), _emit_store)


def _emit_load_half(builder: Builder, address: ir.Value) -> ir.Value:
    return builder.fpext(load(builder, address, F16), F32)


def _emit_store_half(builder: Builder, address: ir.Value, value: ir.Value) -> None:
    store(builder, builder.fptrunc(value, F16), address)


def _emit_vload_half(builder: Builder, address: ir.Value) -> ir.Value:
    return builder.fpext(load(builder, address, ir.VectorType(F16, LANES)), V_F32)


def _emit_vstore_half(builder: Builder, address: ir.Value, value: ir.Value) -> None:
    store(builder, builder.fptrunc(value, ir.VectorType(F16, LANES)), address)


def _emit_vload_u8(builder: Builder, address: ir.Value) -> ir.Value:
    return builder.uitofp(load(builder, address, ir.VectorType(I8, LANES)), V_F32)


def _emit_bf16(builder: Builder, address: ir.Value) -> ir.Value:
    upper = builder.shl(builder.zext(load(builder, address, I16), I32), I32(16))
    return builder.bitcast(upper, F32)


load_f16 = intrinsic("load_f16", _float, (_int,), _emit_load_half)
load_bf16 = intrinsic("load_bf16", _float, (_int,), _emit_bf16)
store_f16 = intrinsic("store_f16", types.void, (_int, _float), _emit_store_half)
vload_u8 = intrinsic("vload_u8", f32x16, (_int,), _emit_vload_u8)
vload_f16 = intrinsic("vload_f16", f32x16, (_int,), _emit_vload_half)
vstore_f16 = intrinsic("vstore_f16", types.void, (_int, f32x16), _emit_vstore_half)


def _lane_mask(builder: Builder, count: ir.Value) -> ir.Value:
    ids = ir.Constant(V_I32, list(range(LANES)))
    return builder.icmp_signed("<", ids, splat(builder, builder.trunc(count, I32)))


def _emit_load_partial(builder: Builder, address: ir.Value, count: ir.Value) -> ir.Value:
    where, mask = pointer(builder, address), _lane_mask(builder, count)
    name, absent = f"llvm.masked.load.v{LANES}f32.p0", ir.Constant(V_F32, None)
    return call(builder, name, V_F32, where, mask, absent)


def _fold(builder: Builder, vector: ir.Value, combine: Emit) -> ir.Value:
    """Halve the lanes until one is left: a fixed tree."""
    lanes = LANES
    while lanes > 1:
        lanes //= 2
        low = ir.Constant(ir.VectorType(I32, lanes), list(range(lanes)))
        high = ir.Constant(ir.VectorType(I32, lanes), list(range(lanes, 2 * lanes)))
        vector = combine(
            builder.shuffle_vector(vector, vector, low),
            builder.shuffle_vector(vector, vector, high),
        )
    return builder.extract_element(vector, I32(0))


def _emit_vmax(builder: Builder, a: ir.Value, b: ir.Value) -> ir.Value:
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def _emit_below(builder: Builder, count: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
    return builder.select(_lane_mask(builder, count), a, b)


def _emit_less(builder: Builder, a: ir.Value, bound: ir.Value) -> ir.Value:
    return _emit_kept(builder, "<", a, bound)


def _emit_at_most(builder: Builder, a: ir.Value, bound: ir.Value) -> ir.Value:
    return _emit_kept(builder, "<=", a, bound)


def _emit_kept(builder: Builder, how: str, a: ir.Value, bound: ir.Value) -> ir.Value:
    """The lanes of which the comparison holds; -inf in the others."""
    kept = builder.fcmp_ordered(how, a, splat(builder, bound))
    return builder.select(kept, a, constant_splat(float("-inf"), V_F32))


def _emit_all_less(builder: Builder, a: ir.Value, bound: ir.Value) -> ir.Value:
    less = builder.fcmp_ordered("<", a, splat(builder, bound))
    none = builder.icmp_unsigned("==", builder.bitcast(builder.not_(less), I16), I16(0))
    return builder.zext(none, I64)


def _emit_find(builder: Builder, a: ir.Value, value: ir.Value) -> ir.Value:
    """The first lane that is equal, or 16."""
    equal = builder.fcmp_ordered("==", a, splat(builder, value))
    mask = builder.zext(builder.bitcast(equal, I16), I64)
    return builder.cttz(builder.or_(mask, I64(1 << LANES)), ir.Constant(ir.IntType(1), 0))


prefetch = intrinsic("prefetch", types.void, (_int,), emit_prefetch)


def _emit_swapped(builder: Builder, vector: ir.Value) -> ir.Value:
    lanes = ir.Constant(V_I32, [i ^ 1 for i in range(LANES)])
    return builder.shuffle_vector(vector, vector, lanes)


vswapped = intrinsic("vswapped", f32x16, (f32x16,), _emit_swapped)
vsplat = intrinsic("vsplat", f32x16, (_float,), splat)
vfma = intrinsic("vfma", f32x16, (f32x16, f32x16, f32x16), fma)
vmax = intrinsic("vmax", f32x16, (f32x16, f32x16), _emit_vmax)
vbelow = intrinsic("vbelow", f32x16, (_int, f32x16, f32x16), _emit_below)
vless = intrinsic("vless", f32x16, (f32x16, _float), _emit_less)
vatmost = intrinsic("vatmost", f32x16, (f32x16, _float), _emit_at_most)
vallless = intrinsic("vallless", _int, (f32x16, _float), _emit_all_less)
vfind = intrinsic("vfind", _int, (f32x16, _float), _emit_find)
vsum = intrinsic("vsum", _float, (f32x16,), lambda b, v: _fold(b, v, b.fadd))
vmax_of = intrinsic(
    "vmax_of", _float, (f32x16,), lambda b, v: _fold(b, v, lambda x, y: _emit_vmax(b, x, y))
)

vload_partial = intrinsic("vload_partial", f32x16, (_int, _int), _emit_load_partial)
