"""Atomics and calls, for the thread team."""

from __future__ import annotations

from llvmlite import ir
from numba import types

from turbodflash_kernels._cpu.emit import I32, I64, Builder, call, intrinsic

_int = types.int64


def _word(builder: Builder, address: ir.Value) -> ir.Value:
    return builder.inttoptr(address, I64.as_pointer())


def _emit_fetch_add(builder: Builder, address: ir.Value, value: ir.Value) -> ir.Value:
    return builder.atomic_rmw("add", _word(builder, address), value, "seq_cst")


def _emit_compare_exchange(
    builder: Builder, address: ir.Value, found: ir.Value, value: ir.Value
) -> ir.Value:
    result = builder.cmpxchg(_word(builder, address), found, value, "seq_cst", "seq_cst")
    return builder.zext(builder.extract_value(result, 1), I64)


def _emit_load_acquire(builder: Builder, address: ir.Value) -> ir.Value:
    return builder.load_atomic(_word(builder, address), "acquire", 8)


def _emit_store_release(builder: Builder, address: ir.Value, value: ir.Value) -> None:
    builder.store_atomic(value, _word(builder, address), "seq_cst", 8)


def _emit_pause(builder: Builder, turns: ir.Value) -> None:
    if "x86" in builder.module.triple or "amd64" in builder.module.triple:
        call(builder, "llvm.x86.sse2.pause", ir.VoidType())


def _emit_call_system(builder: Builder, function: ir.Value) -> None:
    kind = ir.FunctionType(I32, [])
    builder.call(builder.inttoptr(function, kind.as_pointer()), [])


def _emit_call_kernel(
    builder: Builder, function: ir.Value, args: ir.Value, task: ir.Value, scratch: ir.Value
) -> None:
    kernel = ir.FunctionType(ir.VoidType(), [I64, I64, I64])
    builder.call(builder.inttoptr(function, kernel.as_pointer()), [args, task, scratch])


fetch_add = intrinsic("fetch_add", _int, (_int, _int), _emit_fetch_add)
compare_exchange = intrinsic("compare_exchange", _int, (_int, _int, _int), _emit_compare_exchange)
"""Whether the word there was what was found, and now is the value."""
load_acquire = intrinsic("load_acquire", _int, (_int,), _emit_load_acquire)
store_release = intrinsic("store_release", types.void, (_int, _int), _emit_store_release)
pause = intrinsic("pause", types.void, (_int,), _emit_pause)
call_system = intrinsic("call_system", types.void, (_int,), _emit_call_system)
call_kernel = intrinsic("call_kernel", types.void, (_int, _int, _int, _int), _emit_call_kernel)
