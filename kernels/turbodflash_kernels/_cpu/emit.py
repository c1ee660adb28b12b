"""LLVM IR in small pieces: what intrinsics and kernels written as emitters share.

Addresses are int64 byte addresses. A vector has 16 lanes unless its type says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from llvmlite import ir
from numba import types
from numba.core.typing.templates import signature
from numba.extending import intrinsic as numba_intrinsic

LANES = 16

I8, I16, I32, I64 = ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.IntType(64)
F16, F32 = ir.HalfType(), ir.FloatType()
PTR = ir.PointerType()
V_F32, V_I32 = ir.VectorType(F32, LANES), ir.VectorType(I32, LANES)

Builder: TypeAlias = ir.IRBuilder
Values: TypeAlias = list[Any]
Emit = Callable[..., Any]


def pointer(builder: Builder, address: ir.Value) -> ir.Value:
    return builder.inttoptr(address, PTR)


def load(builder: Builder, address: ir.Value, type_: ir.Type, align: int = 1) -> ir.Value:
    return builder.load(pointer(builder, address), typ=type_, align=align)


def store(builder: Builder, value: ir.Value, address: ir.Value, align: int = 1) -> None:
    builder.store(value, pointer(builder, address), align=align)


def splat(builder: Builder, value: ir.Value, lanes: int = LANES) -> ir.Value:
    vector = ir.VectorType(value.type, lanes)
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), value, I32(0))
    zeros = ir.Constant(ir.VectorType(I32, lanes), None)
    return builder.shuffle_vector(first, ir.Constant(vector, ir.Undefined), zeros)


def constant_splat(value: float, vector: ir.VectorType) -> ir.Constant:
    return ir.Constant(vector, [value] * vector.count)


def call(builder: Builder, name: str, result: ir.Type, *args: ir.Value) -> ir.Value:
    """Call an LLVM intrinsic or an external symbol by name."""
    module = builder.module
    function = module.globals.get(name)
    if function is None:
        function = ir.Function(module, ir.FunctionType(result, [a.type for a in args]), name)
    return builder.call(function, args)


def fma(builder: Builder, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    """a * b + c, fused where the machine fuses: the same instruction everywhere in a build."""
    return call(builder, f"llvm.fmuladd.v{LANES}f32", V_F32, a, b, c)


def emit_prefetch(builder: Builder, address: ir.Value, level: int = 1) -> None:
    """Ask for a line, into the cache of this level."""
    where, locality = pointer(builder, address), I32(4 - level)
    call(builder, "llvm.prefetch.p0", ir.VoidType(), where, I32(0), locality, I32(1))


def repeat(builder: Builder, count: ir.Value, body: Callable[[ir.Value], None]) -> None:
    """Emit `for i in range(count): body(i)`; count is an i64 of at least one."""
    before = builder.block
    inside = builder.append_basic_block()
    after = builder.append_basic_block()
    builder.branch(inside)
    builder.position_at_end(inside)
    index = builder.phi(I64)
    index.add_incoming(I64(0), before)
    body(index)
    following = builder.add(index, I64(1))
    index.add_incoming(following, builder.block)
    builder.cbranch(builder.icmp_signed("<", following, count), inside, after)
    builder.position_at_end(after)


def offset(builder: Builder, base: ir.Value, index: ir.Value, size: int) -> ir.Value:
    return builder.add(base, builder.mul(index, I64(size)))


def plus(builder: Builder, base: ir.Value, size: int) -> ir.Value:
    return builder.add(base, I64(size))


def accumulators(builder: Builder, rows: int) -> Values:
    """Slots of the stack for one vector of float32 sums a row, zero at first."""
    accumulators = []
    for _ in range(rows):
        with builder.goto_entry_block():
            slot = builder.alloca(V_F32)
        builder.store(ir.Constant(V_F32, None), slot)
        accumulators.append(slot)
    return accumulators


def row_addresses(builder: Builder, base: ir.Value, stride: ir.Value, rows: int) -> Values:
    """base, base + stride, ..."""
    return [builder.add(base, builder.mul(stride, I64(r))) for r in range(rows)]


def store_rows(builder: Builder, totals: Values, out: ir.Value, stride: ir.Value) -> None:
    """What the slots hold goes to out, out + stride, ..."""
    addresses = row_addresses(builder, out, stride, len(totals))
    for total, address in zip(totals, addresses, strict=True):
        store(builder, builder.load(total, typ=V_F32), address)


def pinned(builder: Builder, values: Values) -> Values:
    """The same vectors, in x86 registers at this point of the program, loads kept on their side.

    Without it the compiler first finishes one half of all sums, and spills what the other needs.
    """
    count = len(values)
    types_ = [value.type for value in values]
    kind = ir.FunctionType(ir.LiteralStructType(types_), types_)
    constraint = ",".join(["=x"] * count + [str(i) for i in range(count)] + ["~{memory}"])
    result = builder.asm(kind, "", constraint, values, side_effect=True)
    return [builder.extract_value(result, i) for i in range(count)]


def intrinsic(name: str, result: types.Type, arguments: tuple[types.Type, ...], emit: Emit) -> Any:
    """An intrinsic of fixed signature; `emit(builder, *args)` writes its instructions."""
    count = len(arguments)
    namespace: dict[str, Any] = {}
    parameters = ", ".join(f"a{i}" for i in range(count))
    exec(f"def {name}(typing_context, {parameters}): return build()", namespace)

    def build() -> Any:
        def codegen(context: Any, builder: Builder, sig: Any, args: Any) -> ir.Value:
            value = emit(builder, *args)
            return context.get_dummy_value() if value is None else value

        return signature(result, *arguments), codegen

    namespace["build"] = build
    return numba_intrinsic(namespace[name])


def function(name: str, arguments: int, emit: Callable[[Builder, Values], None]) -> Any:
    """An intrinsic of `arguments` int64 values that returns nothing."""
    parameters = (types.int64,) * arguments
    return intrinsic(name, types.void, parameters, lambda builder, *args: emit(builder, list(args)))


def call_own(
    builder: Builder, name: str, args: Values, emit: Callable[[Builder, Values], None]
) -> None:
    """Call a function of int64 values that `emit` writes: once, whoever in a kernel calls it."""
    made = builder.module.globals.get(name)
    if made is None:
        kind = ir.FunctionType(ir.VoidType(), [I64] * len(args))
        made = ir.Function(builder.module, kind, name)
        made.linkage = "linkonce_odr"  # Numba makes a module of each function, and joins them
        made.attributes.add("noinline")
        inside = ir.IRBuilder(made.append_basic_block())
        emit(inside, list(made.args))
        inside.ret_void()
    builder.call(made, args)
