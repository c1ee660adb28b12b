"""What encoders are written with: numbers to codes, and codes to bits."""

from __future__ import annotations

from functools import cache
from typing import Any

from llvmlite import ir
from numba import types

from turbodflash_kernels._cpu.emit import (
    I8,
    I16,
    I32,
    LANES,
    V_F32,
    V_I32,
    Builder,
    call,
    constant_splat,
    intrinsic,
    load,
    splat,
    store,
)
from turbodflash_kernels._cpu.simd import f32x16
from turbodflash_kernels._cpu.tables import look_up

BYTES = ir.VectorType(I8, LANES)
SHORTS = ir.VectorType(I16, LANES)
ZEROS = ir.Constant(V_F32, None)
_int, _float = types.int64, types.float32


def _emit_abs(builder: Builder, x: ir.Value) -> ir.Value:
    return call(builder, f"llvm.fabs.v{LANES}f32", V_F32, x)


def _emit_min_of(builder: Builder, a: ir.Value, b: ir.Value) -> ir.Value:
    """The smallest lane of two vectors."""
    vector, lanes = builder.select(builder.fcmp_ordered("<", b, a), b, a), LANES
    while lanes > 1:
        lanes //= 2
        low, high = (
            builder.shuffle_vector(
                vector, vector, ir.Constant(ir.VectorType(I32, lanes), list(range(at, at + lanes)))
            )
            for at in (0, lanes)
        )
        vector = builder.select(builder.fcmp_ordered("<", high, low), high, low)
    return builder.extract_element(vector, I32(0))


def _emit_store_bf16(builder: Builder, address: ir.Value, x: ir.Value) -> None:
    """Rounded to even; NaN stays NaN where rounding would carry into its sign."""
    bits = builder.bitcast(x, V_I32)
    upper = builder.lshr(bits, constant_splat(16, V_I32))
    odd = builder.and_(upper, constant_splat(1, V_I32))
    sum_ = builder.add(bits, builder.add(odd, constant_splat(0x7FFF, V_I32)))
    rounded = builder.lshr(sum_, constant_splat(16, V_I32))
    quiet = builder.or_(upper, constant_splat(0x40, V_I32))
    is_nan = builder.fcmp_unordered("uno", x, x)
    store(builder, builder.trunc(builder.select(is_nan, quiet, rounded), SHORTS), address)


def _emit_rounded(builder: Builder, y: ir.Value, to: ir.Value) -> None:
    """Bytes of -127..127, halves away from zero; NaN is 0."""
    most = constant_splat(127.0, V_F32)
    size = _emit_abs(builder, y)
    size = builder.select(builder.fcmp_ordered("<=", size, most), size, most)
    whole = call(builder, f"llvm.trunc.v{LANES}f32", V_F32, size)
    up = builder.fcmp_ordered(">=", builder.fsub(size, whole), constant_splat(0.5, V_F32))
    code = builder.add(builder.fptosi(whole, V_I32), builder.zext(up, V_I32))
    negative = builder.fcmp_ordered("<", y, ZEROS)
    code = builder.select(negative, builder.sub(ir.Constant(V_I32, None), code), code)
    ordered = builder.sext(builder.fcmp_ordered("ord", y, y), V_I32)
    store(builder, builder.trunc(builder.and_(code, ordered), BYTES), to)


def _emit_truncated(builder: Builder, y: ir.Value, most: ir.Value, to: ir.Value) -> None:
    """Bytes of 0..most; NaN is 0."""
    limit = splat(builder, builder.sitofp(most, V_F32.element))
    y = builder.select(builder.fcmp_ordered(">", y, ZEROS), y, ZEROS)
    y = builder.select(builder.fcmp_ordered("<", y, limit), y, limit)
    store(builder, builder.trunc(builder.fptosi(y, V_I32), BYTES), to)


@cache
def level_codes(middles: tuple[float, ...]) -> Any:
    """to_codes(y, to): bytes that say how many middles are not above each number."""

    def emit(builder: Builder, y: ir.Value, to: ir.Value) -> None:
        code: ir.Value = ir.Constant(V_I32, None)
        for middle in middles:
            reached = builder.fcmp_ordered("<=", constant_splat(middle, V_F32), y)
            code = builder.sub(code, builder.sext(reached, V_I32))
        store(builder, builder.trunc(code, BYTES), to)

    return intrinsic("to_codes", types.void, (f32x16, _int), emit)


@cache
def levels(table: tuple[float, ...], isa: str) -> Any:
    """level(codes): what sixteen bytes stand for."""

    def emit(builder: Builder, codes: ir.Value) -> ir.Value:
        words = builder.zext(load(builder, codes, BYTES), V_I32)
        return look_up(builder, isa, table, words)

    return intrinsic("level", f32x16, (_int,), emit)


def _picked(builder: Builder, at: ir.Value, count: int, first: int, step: int) -> ir.Value:
    """Sixteen of `count` bytes."""
    codes = load(builder, at, ir.VectorType(I8, count))
    lanes = ir.Constant(V_I32, [first + step * lane for lane in range(LANES)])
    return builder.shuffle_vector(codes, codes, lanes)


def _packed(step: int, bits: int, strided: bool) -> Any:
    """Sixteen bytes of the low bits of `step` codes each: neighbours, or codes sixteen apart."""

    def emit(builder: Builder, codes: ir.Value, to: ir.Value) -> None:
        total: ir.Value = ir.Constant(BYTES, None)
        for i in range(step):
            first, apart = (16 * i, 1) if strided else (i, step)
            part = _picked(builder, codes, LANES * step, first, apart)
            part = builder.and_(part, constant_splat((1 << bits) - 1, BYTES))
            total = builder.or_(total, builder.shl(part, constant_splat(bits * i, BYTES)))
        store(builder, total, to)

    return intrinsic("packed", types.void, (_int, _int), emit)


def _emit_bits(builder: Builder, codes: ir.Value, bit: ir.Value, to: ir.Value) -> None:
    """A word: one bit of each of 32 codes."""
    wide = ir.VectorType(I8, 32)
    mask = builder.shl(I8(1), builder.trunc(bit, I8))
    one = builder.and_(load(builder, codes, wide), splat(builder, mask, 32))
    is_set = builder.icmp_unsigned("!=", one, ir.Constant(wide, None))
    store(builder, builder.bitcast(is_set, I32), to)


vabs = intrinsic("vabs", f32x16, (f32x16,), _emit_abs)
vmin_of = intrinsic("vmin_of", _float, (f32x16, f32x16), _emit_min_of)
vstore_bf16 = intrinsic("vstore_bf16", types.void, (_int, f32x16), _emit_store_bf16)
rounded_codes = intrinsic("rounded_codes", types.void, (f32x16, _int), _emit_rounded)
truncated_codes = intrinsic("truncated_codes", types.void, (f32x16, _int, _int), _emit_truncated)
pack_nibbles = _packed(2, 4, strided=True)
pack_pairs = _packed(2, 4, strided=False)
pack_quarters = _packed(4, 2, strided=False)
pack_bits = intrinsic("pack_bits", types.void, (_int, _int, _int), _emit_bits)
