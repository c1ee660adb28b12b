"""Micro-kernels that do nothing but read, or nothing but multiply: the machine's ceilings."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import signature
from numba.extending import intrinsic

from turbodflash_kernels._cpu.codes import HALF_I8, V_I8
from turbodflash_kernels._cpu.emit import (
    I64,
    V_I32,
    call,
    constant_splat,
    load,
    repeat,
    store,
)
from turbodflash_kernels._cpu.machines import HALF_I16, HALF_I32, vpdpbusd
from turbodflash_kernels._cpu.simd import load_i64

CHAINS = 8  # independent sums: enough to hide the latency of a multiply-add
MORE_CHAINS = 16  # where that takes five steps and two begin in each


def build(name, *spec):
    return {"read": read, "multiply": multiply}[name](*spec)


def read():
    """words: buffer, bytes_per_task, out. Reads its share once, 512 bytes a turn."""

    def kernel(args, task, scratch):
        size = load_i64(args + 8)
        _read(load_i64(args) + task * size, size // 512, load_i64(args + 16) + 64 * task)

    return kernel


def multiply(isa: str):
    """words: turns, out. Each turn: as many multiply-adds of one vector as there are chains."""
    loop = _multiply(isa)

    def kernel(args, task, scratch):
        loop(load_i64(args), load_i64(args + 8) + 64 * task)

    return kernel


def opaque(builder: ir.IRBuilder, vector: ir.Value) -> ir.Value:
    """The vector, as something the compiler knows nothing of and cannot share or leave out."""
    kind = ir.FunctionType(vector.type, [vector.type])
    register = "x" if "x86" in builder.module.triple else "w"
    return builder.asm(kind, "", f"={register},0", [vector], side_effect=True)


@intrinsic
def _read(typing_context, address, turns, out):
    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        base, count, to = args
        sums = _slots(builder, V_I32)

        def turn(i: ir.Value) -> None:
            at = builder.add(base, builder.mul(i, I64(512)))
            for j, slot in enumerate(sums):
                lanes = load(builder, builder.add(at, I64(64 * j)), V_I32)
                builder.store(builder.add(builder.load(slot, typ=V_I32), lanes), slot)

        repeat(builder, count, turn)
        _store_total(builder, sums, V_I32, to)
        return context.get_dummy_value()

    return signature(types.void, types.int64, types.int64, types.int64), codegen


def _multiply(isa: str) -> Any:
    kind = {"avx512_vnni": V_I32, "avx_vnni": HALF_I32, "avx2": HALF_I16, "generic": V_I32}[isa]

    def step(builder: ir.IRBuilder, total: ir.Value, left: ir.Value, right: ir.Value) -> ir.Value:
        if isa == "avx512_vnni":
            return vpdpbusd(builder, 512, total, left, right)
        if isa == "avx_vnni":
            return vpdpbusd(builder, 256, total, left, right)
        if isa == "avx2":
            pairs = call(builder, "llvm.x86.avx2.pmadd.ub.sw", HALF_I16, left, right)
            return builder.add(total, pairs)
        return builder.add(total, builder.mul(left, right))

    chains = MORE_CHAINS if isa == "avx512_vnni" else CHAINS
    operand = {"avx512_vnni": V_I8, "avx_vnni": HALF_I8, "avx2": HALF_I8, "generic": V_I32}[isa]

    @intrinsic
    def loop(typing_context, turns, out):
        def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
            sums, lefts = _slots(builder, kind, chains), _slots(builder, operand, chains // 2)
            rights = constant_splat(1, operand), constant_splat(2, operand)

            def turn(i: ir.Value) -> None:
                for j, slot in enumerate(lefts):
                    left = opaque(builder, builder.load(slot, typ=operand))
                    builder.store(left, slot)
                    for right, total in zip(rights, sums[2 * j : 2 * j + 2], strict=True):
                        so_far = builder.load(total, typ=kind)
                        builder.store(step(builder, so_far, left, right), total)

            repeat(builder, args[0], turn)
            _store_total(builder, sums, kind, args[1])
            return context.get_dummy_value()

        return signature(types.void, types.int64, types.int64), codegen

    return loop


def _slots(builder: ir.IRBuilder, kind: ir.Type, count: int = CHAINS) -> list[Any]:
    slots = []
    for _ in range(count):
        with builder.goto_entry_block():
            slot = builder.alloca(kind)
        builder.store(ir.Constant(kind, None), slot)
        slots.append(slot)
    return slots


def _store_total(builder: ir.IRBuilder, slots: list[Any], kind: ir.Type, out: ir.Value) -> None:
    total = builder.load(slots[0], typ=kind)
    for slot in slots[1:]:
        total = builder.add(total, builder.load(slot, typ=kind))
    store(builder, total, out)
