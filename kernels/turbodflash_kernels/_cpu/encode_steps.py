"""What encoders are written with: numbers to codes, and codes to bits."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from turbodflash_kernels._cpu.codecs import levels_of
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
from turbodflash_kernels.kv._pairs import TWINS, Pairs

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
def pair_codes(type: str) -> Any:
    """to_pairs(doubled, first, second): two bytes for each of sixteen numbers, given twice: codes
    whose levels have the nearest sum (`kv._pairs.Pairs`), not yet flipped where a twin is negative.
    """
    pairs = Pairs.of(np.array(levels_of(type), np.float32))
    both = pairs.first.astype(np.int64) | pairs.second.astype(np.int64) << 8
    opposite = pairs.last * 0x101

    def emit(builder: Builder, doubled: ir.Value, first: ir.Value, second: ir.Value) -> None:
        size, code = _emit_abs(builder, doubled), constant_splat(int(both[0]), V_I32)
        for middle, step in zip(pairs.middles, np.diff(both), strict=True):
            reached = builder.fcmp_ordered("<=", constant_splat(float(middle), V_F32), size)
            more = builder.and_(builder.sext(reached, V_I32), constant_splat(int(step), V_I32))
            code = builder.add(code, more)
        negative = builder.sext(builder.fcmp_ordered("<", doubled, ZEROS), V_I32)
        code = builder.xor(code, builder.and_(negative, constant_splat(opposite, V_I32)))
        store(builder, builder.trunc(code, BYTES), first)
        upper = builder.lshr(code, constant_splat(8, V_I32))
        store(builder, builder.trunc(upper, BYTES), second)

    return intrinsic("to_pairs", types.void, (f32x16, _int, _int), emit)


@cache
def twin_codes(last: int) -> Any:
    """flip(codes): the codes of second halves become those of the numbers that stand there."""
    flips = [last if sign < 0 else 0 for sign in TWINS]

    def emit(builder: Builder, codes: ir.Value) -> None:
        kind = ir.VectorType(I8, len(flips))
        store(builder, builder.xor(load(builder, codes, kind), ir.Constant(kind, flips)), codes)

    return intrinsic("flip", types.void, (_int,), emit)


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
