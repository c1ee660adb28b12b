"""The inner loop of a matrix product with weights that are floats: sixteen rows, a few inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from turbodflash_kernels._cpu import layout
from turbodflash_kernels._cpu.emit import (
    F16,
    F32,
    I16,
    I64,
    V_F32,
    V_I32,
    Builder,
    Values,
    accumulators,
    constant_splat,
    fma,
    function,
    load,
    offset,
    repeat,
    row_addresses,
    splat,
    store_rows,
)


def dense_tile(kind: str, rows: int) -> Any:
    """tile(weights, x, stride, blocks, rest, out, out_stride) over float32 activations.

    The sum runs over blocks of 32 inputs, each summed from zero, then the `rest` inputs that fill
    no block; `stride` is in bytes.
    """

    def emit(builder: Builder, args: Values) -> None:
        weights, x, stride, blocks, rest, out, out_stride = args
        totals, block_sums = accumulators(builder, rows), accumulators(builder, rows)
        x_rows = row_addresses(builder, x, stride, rows)
        width = layout.TILE * layout.DENSE_BYTES[kind]

        def add_inputs(first: ir.Value, count: ir.Value) -> None:
            for slot in block_sums:
                builder.store(ir.Constant(V_F32, None), slot)

            def one_input(j: ir.Value) -> None:
                k = builder.add(first, j)
                lanes = _dense_lanes(builder, kind, offset(builder, weights, k, width))
                for row, slot in zip(x_rows, block_sums, strict=True):
                    value = splat(builder, load(builder, offset(builder, row, k, 4), F32))
                    so_far = builder.load(slot, typ=V_F32)
                    builder.store(fma(builder, lanes, value, so_far), slot)

            repeat(builder, count, one_input)
            for slot, total in zip(block_sums, totals, strict=True):
                both = builder.fadd(builder.load(total, typ=V_F32), builder.load(slot, typ=V_F32))
                builder.store(both, total)

        def when(condition: ir.Value, body: Callable[[], None]) -> None:
            with builder.if_then(condition):
                body()

        def all_blocks() -> None:
            repeat(builder, blocks, lambda b: add_inputs(builder.shl(b, I64(5)), I64(layout.BLOCK)))

        when(builder.icmp_signed(">", blocks, I64(0)), all_blocks)
        when(
            builder.icmp_signed(">", rest, I64(0)),
            lambda: add_inputs(builder.shl(blocks, I64(5)), rest),
        )
        store_rows(builder, totals, out, out_stride)

    return function(f"tile_{kind}_{rows}", 7, emit)


def _dense_lanes(builder: Builder, kind: str, address: ir.Value) -> ir.Value:
    if kind == "f32":
        return load(builder, address, V_F32)
    if kind == "f16":
        return builder.fpext(load(builder, address, ir.VectorType(F16, 16)), V_F32)
    upper = builder.zext(load(builder, address, ir.VectorType(I16, 16)), V_I32)
    return builder.bitcast(builder.shl(upper, constant_splat(16, V_I32)), V_F32)
