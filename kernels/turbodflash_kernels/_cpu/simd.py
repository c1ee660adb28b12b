"""Vectors, raw memory and atomics for kernels that Numba compiles.

Addresses are int64 byte addresses: kernels get them from a tape, not from arrays. A vector has 16
lanes of float32 or int32; LLVM maps it to one AVX-512, two AVX2 or four NEON registers. `fma` is
one rounding where the machine has it. Horizontal sums add in a fixed tree, so a result's bits
never depend on anything but its inputs.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

LANES = 16

I8, I16, I32, I64 = ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.IntType(64)
F16, F32 = ir.HalfType(), ir.FloatType()
PTR = ir.PointerType()
V_F32, V_I32 = ir.VectorType(F32, LANES), ir.VectorType(I32, LANES)


class Vector(types.Type):
    """A Numba type for 16 lanes of one element type."""

    def __init__(self, name: str, llvm_type: ir.Type) -> None:
        super().__init__(name=name)
        self.llvm_type = llvm_type


f32x16 = Vector("f32x16", V_F32)
i32x16 = Vector("i32x16", V_I32)


@register_model(Vector)
class VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, vector: Vector) -> None:
        super().__init__(manager, vector, vector.llvm_type)


def _lower_operator(function: Any, vector: Vector, instruction: str) -> None:
    @infer_global(function)
    class _(ConcreteTemplate):
        cases = [signature(vector, vector, vector)]  # noqa: RUF012 (Numba's own spelling)

    @lower_builtin(function, vector, vector)
    def _lower(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        return getattr(builder, instruction)(*args)


for _vector, _prefix in ((f32x16, "f"), (i32x16, "")):
    _lower_operator(operator.add, _vector, f"{_prefix}add")
    _lower_operator(operator.sub, _vector, f"{_prefix}sub")
    _lower_operator(operator.mul, _vector, f"{_prefix}mul")
_lower_operator(operator.truediv, f32x16, "fdiv")


# -- building blocks shared by the intrinsics below and by tiles.py --------------------------------


def pointer(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    return builder.inttoptr(address, PTR)


def load(builder: ir.IRBuilder, address: ir.Value, type_: ir.Type, align: int = 1) -> ir.Value:
    return builder.load(pointer(builder, address), typ=type_, align=align)


def store(builder: ir.IRBuilder, value: ir.Value, address: ir.Value, align: int = 1) -> None:
    builder.store(value, pointer(builder, address), align=align)


def splat(builder: ir.IRBuilder, value: ir.Value, lanes: int = LANES) -> ir.Value:
    vector = ir.VectorType(value.type, lanes)
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), value, I32(0))
    zeros = ir.Constant(ir.VectorType(I32, lanes), None)
    return builder.shuffle_vector(first, ir.Constant(vector, ir.Undefined), zeros)


def constant_splat(value: float, vector: ir.VectorType) -> ir.Constant:
    return ir.Constant(vector, [value] * vector.count)


def call(builder: ir.IRBuilder, name: str, result: ir.Type, *args: ir.Value) -> ir.Value:
    """Call an LLVM intrinsic or an external symbol by name."""
    module = builder.module
    function = module.globals.get(name)
    if function is None:
        function = ir.Function(module, ir.FunctionType(result, [a.type for a in args]), name)
    return builder.call(function, args)


def fma(builder: ir.IRBuilder, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    """a * b + c, fused where the machine fuses: the same instruction everywhere in a build."""
    return call(builder, f"llvm.fmuladd.v{LANES}f32", V_F32, a, b, c)


# -- intrinsics ------------------------------------------------------------------------------------

Emit = Callable[..., Any]


def _intrinsic(name: str, result: types.Type, arguments: tuple[types.Type, ...], emit: Emit) -> Any:
    """An intrinsic of fixed signature; `emit(builder, *args)` writes its instructions."""
    count = len(arguments)
    namespace: dict[str, Any] = {}
    parameters = ", ".join(f"a{i}" for i in range(count))
    exec(f"def {name}(typing_context, {parameters}): return build()", namespace)

    def build() -> Any:
        def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
            value = emit(builder, *args)
            return context.get_dummy_value() if value is None else value

        return signature(result, *arguments), codegen

    namespace["build"] = build
    return intrinsic(namespace[name])


_int, _float = types.int64, types.float32


def _emit_load(type_: ir.Type) -> Emit:
    return lambda builder, address: load(builder, address, type_)


def _emit_load_wide(narrow: ir.Type, widen: str) -> Emit:
    def emit(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
        return getattr(builder, widen)(load(builder, address, narrow), I64)

    return emit


def _emit_store(builder: ir.IRBuilder, address: ir.Value, value: ir.Value) -> None:
    store(builder, value, address)


def _emit_store_narrow(narrow: ir.Type) -> Emit:
    def emit(builder: ir.IRBuilder, address: ir.Value, value: ir.Value) -> None:
        store(builder, builder.trunc(value, narrow), address)

    return emit


load_f32 = _intrinsic("load_f32", _float, (_int,), _emit_load(F32))
load_i64 = _intrinsic("load_i64", _int, (_int,), _emit_load(I64))
load_i32 = _intrinsic("load_i32", _int, (_int,), _emit_load_wide(I32, "sext"))
load_i8 = _intrinsic("load_i8", _int, (_int,), _emit_load_wide(I8, "sext"))
load_u8 = _intrinsic("load_u8", _int, (_int,), _emit_load_wide(I8, "zext"))
load_u16 = _intrinsic("load_u16", _int, (_int,), _emit_load_wide(I16, "zext"))
store_f32 = _intrinsic("store_f32", types.void, (_int, _float), _emit_store)
store_i64 = _intrinsic("store_i64", types.void, (_int, _int), _emit_store)
store_i32 = _intrinsic("store_i32", types.void, (_int, _int), _emit_store_narrow(I32))
store_i16 = _intrinsic("store_i16", types.void, (_int, _int), _emit_store_narrow(I16))
store_i8 = _intrinsic("store_i8", types.void, (_int, _int), _emit_store_narrow(I8))
vload = _intrinsic("vload", f32x16, (_int,), _emit_load(V_F32))
vstore = _intrinsic("vstore", types.void, (_int, f32x16), _emit_store)


def _emit_load_half(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    return builder.fpext(load(builder, address, F16), F32)


def _emit_store_half(builder: ir.IRBuilder, address: ir.Value, value: ir.Value) -> None:
    store(builder, builder.fptrunc(value, F16), address)


def _emit_vload_half(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    return builder.fpext(load(builder, address, ir.VectorType(F16, LANES)), V_F32)


def _emit_vstore_half(builder: ir.IRBuilder, address: ir.Value, value: ir.Value) -> None:
    store(builder, builder.fptrunc(value, ir.VectorType(F16, LANES)), address)


def _emit_vload_u8(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    return builder.uitofp(load(builder, address, ir.VectorType(I8, LANES)), V_F32)


def _emit_bf16(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    upper = builder.shl(builder.zext(load(builder, address, I16), I32), I32(16))
    return builder.bitcast(upper, F32)


load_f16 = _intrinsic("load_f16", _float, (_int,), _emit_load_half)
load_bf16 = _intrinsic("load_bf16", _float, (_int,), _emit_bf16)
store_f16 = _intrinsic("store_f16", types.void, (_int, _float), _emit_store_half)
vload_u8 = _intrinsic("vload_u8", f32x16, (_int,), _emit_vload_u8)
vload_f16 = _intrinsic("vload_f16", f32x16, (_int,), _emit_vload_half)
vstore_f16 = _intrinsic("vstore_f16", types.void, (_int, f32x16), _emit_vstore_half)


def _lane_mask(builder: ir.IRBuilder, count: ir.Value) -> ir.Value:
    ids = ir.Constant(V_I32, list(range(LANES)))
    return builder.icmp_signed("<", ids, splat(builder, builder.trunc(count, I32)))


def _emit_load_partial(builder: ir.IRBuilder, address: ir.Value, count: ir.Value) -> ir.Value:
    return call(
        builder,
        f"llvm.masked.load.v{LANES}f32.p0",
        V_F32,
        *_masked(builder, address, _lane_mask(builder, count), ir.Constant(V_F32, None)),
    )


def _masked(
    builder: ir.IRBuilder, address: ir.Value, mask: ir.Value, other: ir.Value
) -> tuple[ir.Value, ...]:
    return pointer(builder, address), mask, other


def _emit_splat(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    return splat(builder, value)


def _fold(builder: ir.IRBuilder, vector: ir.Value, combine: Emit) -> ir.Value:
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


def _emit_vmax(builder: ir.IRBuilder, a: ir.Value, b: ir.Value) -> ir.Value:
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def _emit_below(builder: ir.IRBuilder, count: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
    return builder.select(_lane_mask(builder, count), a, b)


def _emit_less(builder: ir.IRBuilder, a: ir.Value, bound: ir.Value) -> ir.Value:
    return _emit_kept(builder, "<", a, bound)


def _emit_at_most(builder: ir.IRBuilder, a: ir.Value, bound: ir.Value) -> ir.Value:
    return _emit_kept(builder, "<=", a, bound)


def _emit_kept(builder: ir.IRBuilder, how: str, a: ir.Value, bound: ir.Value) -> ir.Value:
    """The lanes of which the comparison holds; -inf in the others."""
    kept = builder.fcmp_ordered(how, a, splat(builder, bound))
    return builder.select(kept, a, constant_splat(float("-inf"), V_F32))


def _emit_find(builder: ir.IRBuilder, a: ir.Value, value: ir.Value) -> ir.Value:
    """The first lane that is equal, or 16."""
    equal = builder.fcmp_ordered("==", a, splat(builder, value))
    mask = builder.zext(builder.bitcast(equal, I16), I64)
    return builder.cttz(builder.or_(mask, I64(1 << LANES)), ir.Constant(ir.IntType(1), 0))


def emit_prefetch(builder: ir.IRBuilder, address: ir.Value) -> None:
    where = pointer(builder, address)
    call(builder, "llvm.prefetch.p0", ir.VoidType(), where, I32(0), I32(3), I32(1))


prefetch = _intrinsic("prefetch", types.void, (_int,), emit_prefetch)


def _emit_swapped(builder: ir.IRBuilder, vector: ir.Value) -> ir.Value:
    lanes = ir.Constant(V_I32, [i ^ 1 for i in range(LANES)])
    return builder.shuffle_vector(vector, vector, lanes)


vswapped = _intrinsic("vswapped", f32x16, (f32x16,), _emit_swapped)
vsplat = _intrinsic("vsplat", f32x16, (_float,), _emit_splat)
vfma = _intrinsic("vfma", f32x16, (f32x16, f32x16, f32x16), fma)
vmax = _intrinsic("vmax", f32x16, (f32x16, f32x16), _emit_vmax)
vbelow = _intrinsic("vbelow", f32x16, (_int, f32x16, f32x16), _emit_below)
vless = _intrinsic("vless", f32x16, (f32x16, _float), _emit_less)
vatmost = _intrinsic("vatmost", f32x16, (f32x16, _float), _emit_at_most)
vfind = _intrinsic("vfind", _int, (f32x16, _float), _emit_find)
vsum = _intrinsic("vsum", _float, (f32x16,), lambda b, v: _fold(b, v, b.fadd))
vmax_of = _intrinsic(
    "vmax_of", _float, (f32x16,), lambda b, v: _fold(b, v, lambda x, y: _emit_vmax(b, x, y))
)


# exp(x) = 2^n * p(r), n = round(x / ln 2), r = x - n ln 2 in two steps; p is the Taylor series to
# degree 7, good to one unit in the last place on |r| <= ln(2) / 2.
_LOG2E, _LN2_HIGH, _LN2_LOW = 1.4426950408889634, 0.693359375, -2.12194440e-4
_SERIES = (1 / 5040, 1 / 720, 1 / 120, 1 / 24, 1 / 6, 0.5, 1.0, 1.0)
_SMALLEST, _LARGEST = -87.33654, 88.3762


def _emit_exp(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    def vector(value: float) -> ir.Constant:
        return constant_splat(value, V_F32)

    tiny = builder.fcmp_ordered("<", x, vector(_SMALLEST))
    inside = builder.select(tiny, vector(_SMALLEST), x)
    too_big = builder.fcmp_ordered(">", inside, vector(_LARGEST))
    inside = builder.select(too_big, vector(_LARGEST), inside)
    n = call(builder, f"llvm.rint.v{LANES}f32", V_F32, builder.fmul(inside, vector(_LOG2E)))
    r = fma(builder, n, vector(-_LN2_HIGH), inside)
    r = fma(builder, n, vector(-_LN2_LOW), r)
    p: ir.Value = vector(_SERIES[0])
    for coefficient in _SERIES[1:]:
        p = fma(builder, p, r, vector(coefficient))
    exponent = builder.add(builder.fptosi(n, V_I32), constant_splat(127, V_I32))
    power = builder.bitcast(builder.shl(exponent, constant_splat(23, V_I32)), V_F32)
    return builder.select(tiny, vector(0.0), builder.fmul(p, power))


vexp = _intrinsic("vexp", f32x16, (f32x16,), _emit_exp)
vload_partial = _intrinsic("vload_partial", f32x16, (_int, _int), _emit_load_partial)


# -- atomics and calls, for the thread team --------------------------------------------------------


def _word(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    return builder.inttoptr(address, I64.as_pointer())


def _emit_fetch_add(builder: ir.IRBuilder, address: ir.Value, value: ir.Value) -> ir.Value:
    return builder.atomic_rmw("add", _word(builder, address), value, "seq_cst")


def _emit_load_acquire(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    return builder.load_atomic(_word(builder, address), "acquire", 8)


def _emit_store_release(builder: ir.IRBuilder, address: ir.Value, value: ir.Value) -> None:
    builder.store_atomic(value, _word(builder, address), "seq_cst", 8)


def _emit_pause(builder: ir.IRBuilder, turns: ir.Value) -> None:
    if "x86" in builder.module.triple or "amd64" in builder.module.triple:
        call(builder, "llvm.x86.sse2.pause", ir.VoidType())


def _emit_call_system(builder: ir.IRBuilder, function: ir.Value) -> None:
    kind = ir.FunctionType(I32, [])
    builder.call(builder.inttoptr(function, kind.as_pointer()), [])


def _emit_call_kernel(
    builder: ir.IRBuilder, function: ir.Value, args: ir.Value, task: ir.Value, scratch: ir.Value
) -> None:
    kernel = ir.FunctionType(ir.VoidType(), [I64, I64, I64])
    builder.call(builder.inttoptr(function, kernel.as_pointer()), [args, task, scratch])


fetch_add = _intrinsic("fetch_add", _int, (_int, _int), _emit_fetch_add)
load_acquire = _intrinsic("load_acquire", _int, (_int,), _emit_load_acquire)
store_release = _intrinsic("store_release", types.void, (_int, _int), _emit_store_release)
pause = _intrinsic("pause", types.void, (_int,), _emit_pause)
call_system = _intrinsic("call_system", types.void, (_int,), _emit_call_system)
call_kernel = _intrinsic("call_kernel", types.void, (_int, _int, _int, _int), _emit_call_kernel)
