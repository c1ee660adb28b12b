"""Small pieces of LLVM IR that kernels written as emitters share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from llvmlite import ir
from numba import types
from numba.core.typing.templates import signature
from numba.extending import intrinsic

from turbodflash_kernels._cpu.simd import I64

Builder: TypeAlias = ir.IRBuilder
Values: TypeAlias = list[Any]


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


def function(name: str, arguments: int, emit: Callable[[Builder, Values], None]) -> Any:
    """An intrinsic of `arguments` int64 values that returns nothing."""
    namespace: dict[str, Any] = {"build": None}
    parameters = ", ".join(f"a{i}" for i in range(arguments))
    exec(f"def {name}(typing_context, {parameters}): return build()", namespace)

    def build() -> Any:
        def codegen(context: Any, builder: Builder, sig: Any, args: Values) -> ir.Value:
            emit(builder, args)
            return context.get_dummy_value()

        return signature(types.void, *[types.int64] * arguments), codegen

    namespace["build"] = build
    return intrinsic(namespace[name])
