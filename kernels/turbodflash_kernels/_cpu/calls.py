"""Calls of kernels by address: a kernel for each type, not one for every pair of types."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from turbodflash_kernels._cpu.emit import I64, Builder, intrinsic


def _caller(arguments: int) -> Any:
    """caller(address, ...) of a kernel of so many int64 arguments."""
    kind = ir.FunctionType(ir.VoidType(), [I64] * arguments)

    def emit(builder: Builder, address: ir.Value, *args: ir.Value) -> None:
        builder.call(builder.inttoptr(address, kind.as_pointer()), args)

    return intrinsic(f"call{arguments}", types.void, (types.int64,) * (arguments + 1), emit)


call3, call4, call5, call7 = _caller(3), _caller(4), _caller(5), _caller(7)
call9, call11 = _caller(9), _caller(11)
