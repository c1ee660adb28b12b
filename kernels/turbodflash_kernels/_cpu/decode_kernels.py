"""Stored keys and values as float32, for every type: exactly what the type's codec gives.

keys(tile, blocks, out): sixteen keys of a head as f32 [numbers, 16].
values(rows, row_bytes, count, blocks, out): values of a head, a row each, as f32 [count, numbers].
Tiles are described in _cpu/kv.py; a value's row is what the codec writes. `blocks` counts blocks of
the type, which are single numbers of a type without: sixteen times as many as are decoded at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from turbodflash_kernels._cpu import turbo_codes
from turbodflash_kernels._cpu.codecs import PLAIN, Codes, codes_of
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
    Values,
    constant_splat,
    fma,
    function,
    load,
    offset,
    plus,
    repeat,
    splat,
    store,
)
from turbodflash_kernels._cpu.tables import either, look_up

HALVES = ir.VectorType(F16, LANES)
BYTES = ir.VectorType(I8, LANES)
SHORTS = ir.VectorType(I16, LANES)
VECTOR_BYTES = 4 * LANES

Emit = Callable[[Builder, ir.Value, ir.Value], None]
"""A block: where it lies, and where its numbers go."""


def build(name: str, *spec: Any) -> Any:
    return {"keys": keys, "values": values}[name](*spec)


def keys(type: str, isa: str) -> Any:
    if type.startswith("turbo"):
        return _turbo_keys(type, isa)
    block_bytes, numbers, emit = _kind(type, isa, tile=True)

    def blocks(builder: Builder, args: Values) -> None:
        tile, count, out = args
        count = _at_once(builder, type, count)

        def block(index: ir.Value) -> None:
            to = offset(builder, out, index, numbers * VECTOR_BYTES)
            emit(builder, offset(builder, tile, index, LANES * block_bytes), to)

        repeat(builder, count, block)

    emit_all = function(f"keys_{type}", 3, blocks)

    def kernel(tile, count, out):
        emit_all(tile, count, out)

    return kernel


def values(type: str, isa: str) -> Any:
    if type.startswith("turbo"):
        return _turbo_values(type, isa)
    block_bytes, numbers, emit = _kind(type, isa, tile=False)

    def rows(builder: Builder, args: Values) -> None:
        first, row_bytes, count, blocks, out = args
        blocks = _at_once(builder, type, blocks)
        row_floats = builder.mul(blocks, I64(4 * numbers))

        def row(index: ir.Value) -> None:
            start = builder.add(first, builder.mul(index, row_bytes))
            to = builder.add(out, builder.mul(index, row_floats))
            repeat(
                builder,
                blocks,
                lambda i: emit(
                    builder,
                    offset(builder, start, i, block_bytes),
                    offset(builder, to, i, 4 * numbers),
                ),
            )

        repeat(builder, count, row)

    emit_all = function(f"values_{type}", 5, rows)

    def kernel(first, row_bytes, count, blocks, out):
        emit_all(first, row_bytes, count, blocks, out)

    return kernel


def _turbo_keys(type: str, isa: str) -> Any:
    codes = codes_of(type)

    def blocks(builder: Builder, args: Values) -> None:
        tile, halves, out = args
        turbo_codes.blocks(builder, isa, codes, tile, halves, out, tile=True)

    emit_all = function(f"keys_{type}", 3, blocks)

    def kernel(tile, halves, out):
        emit_all(tile, halves, out)

    return kernel


def _turbo_values(type: str, isa: str) -> Any:
    codes = codes_of(type)

    def rows(builder: Builder, args: Values) -> None:
        first, row_bytes, count, halves, out = args
        row_floats = builder.mul(halves, I64(4 * turbo_codes.HALF))

        def row(index: ir.Value) -> None:
            at = builder.add(first, builder.mul(index, row_bytes))
            to = builder.add(out, builder.mul(index, row_floats))
            turbo_codes.blocks(builder, isa, codes, at, halves, to, tile=False)

        repeat(builder, count, row)

    emit_all = function(f"values_{type}", 5, rows)

    def kernel(first, row_bytes, count, halves, out):
        emit_all(first, row_bytes, count, halves, out)

    return kernel


def _at_once(builder: Builder, type: str, blocks: ir.Value) -> ir.Value:
    return builder.lshr(blocks, I64(4)) if type in PLAIN else blocks


def _kind(type: str, isa: str, tile: bool) -> tuple[int, int, Emit]:
    """Bytes of a block, its numbers, and what decodes one: a row's, or sixteen keys'."""
    if type in PLAIN:
        size = 4 if type == "f32" else 2
        sixteen = _plain_tile if tile else _plain_row
        return size * LANES, LANES, lambda b, at, to: sixteen(b, type, at, to)
    if type == "q8_0":
        return 34, 32, _bytes_tile if tile else _bytes_row
    codes = codes_of(type)
    emit = _tile if tile else _row
    return codes.block_bytes, codes.numbers, lambda b, at, to: emit(b, isa, codes, at, to)


# -- without blocks, and bytes -------------------------------------------------------------------


def _plain(builder: Builder, type: str, at: ir.Value) -> ir.Value:
    """Sixteen numbers."""
    if type == "f32":
        return load(builder, at, V_F32)
    if type == "f16":
        return builder.fpext(load(builder, at, HALVES), V_F32)
    upper = builder.zext(load(builder, at, SHORTS), V_I32)
    return builder.bitcast(builder.shl(upper, constant_splat(16, V_I32)), V_F32)


def _plain_row(builder: Builder, type: str, at: ir.Value, to: ir.Value) -> None:
    store(builder, _plain(builder, type, at), to)


def _plain_tile(builder: Builder, type: str, at: ir.Value, to: ir.Value) -> None:
    size = 4 if type == "f32" else 2
    for i in range(LANES):
        number = _plain(builder, type, plus(builder, at, i * size * LANES))
        store(builder, number, plus(builder, to, i * VECTOR_BYTES))


def _scale(builder: Builder, at: ir.Value) -> ir.Value:
    """The float16 there, in all lanes.

    Spread before it is widened: one number alone is put into what a register held before, and
    would have to wait for that.
    """
    eight = builder.bitcast(splat(builder, load(builder, at, I16), 8), ir.VectorType(F16, 8))
    wide = builder.fpext(eight, ir.VectorType(F32, 8))
    return builder.shuffle_vector(wide, wide, ir.Constant(V_I32, list(range(LANES))))


def _scales(builder: Builder, at: ir.Value) -> ir.Value:
    """The float16 of sixteen keys."""
    return builder.fpext(load(builder, at, HALVES), V_F32)


def _bytes(builder: Builder, at: ir.Value, scale: ir.Value) -> ir.Value:
    code = builder.sitofp(load(builder, at, BYTES), V_F32)
    return builder.fmul(code, scale)


def _bytes_tile(builder: Builder, at: ir.Value, to: ir.Value) -> None:
    scale = _scales(builder, at)
    for i in range(32):
        number = _bytes(builder, plus(builder, at, 2 * LANES + i * LANES), scale)
        store(builder, number, plus(builder, to, i * VECTOR_BYTES))


def _bytes_row(builder: Builder, at: ir.Value, to: ir.Value) -> None:
    scale = _scale(builder, at)
    for i in range(0, 32, LANES):
        store(builder, _bytes(builder, plus(builder, at, 2 + i), scale), plus(builder, to, 4 * i))


# -- codes in words ------------------------------------------------------------------------------


def _tile(builder: Builder, isa: str, codes: Codes, at: ir.Value, to: ir.Value) -> None:
    """Lanes are keys: every lane shifts its word by the same."""
    affine = _affine(builder, codes, lambda field: _scales(builder, plus(builder, at, 32 * field)))

    def word(index: int) -> ir.Value:
        return load(builder, plus(builder, at, 32 * codes.fields + VECTOR_BYTES * index), V_I32)

    def shifted(words: ir.Value, left: int) -> ir.Value:
        if left >= 0:
            return builder.shl(words, constant_splat(left, V_I32))
        return builder.lshr(words, constant_splat(-left, V_I32))

    highs = [word(codes.first_high + i) for i in range(codes.high)]
    for index in range(codes.words):
        low = word(codes.first_low + index)
        for place in range(32 // codes.bits):
            element = codes.at(index, place)
            code, high = shifted(low, -codes.bits * place), None
            if codes.high:  # the bit becomes the sign, or stands above the others
                up = 31 if codes.table else codes.bits
                high = shifted(highs[element // 32], up - element % 32)
            number = _number(builder, isa, codes, code, high, affine)
            store(builder, number, plus(builder, to, VECTOR_BYTES * element))


def _row(builder: Builder, isa: str, codes: Codes, at: ir.Value, to: ir.Value) -> None:
    """Lanes are neighbouring elements of one value."""
    affine = _affine(builder, codes, lambda field: _scale(builder, plus(builder, at, 2 * field)))
    low_at = plus(builder, at, 2 * codes.fields + 4 * codes.first_low)
    high_at = plus(builder, at, 2 * codes.fields + 4 * codes.first_high)
    for first in range(0, codes.numbers, LANES):
        if codes.paired:
            code = builder.zext(load(builder, low_at, BYTES), V_I32)
            if first:
                code = builder.lshr(code, constant_splat(4, V_I32))
        else:
            code = _spread(builder, codes, low_at, first)
        high = None
        if codes.high:
            word = splat(builder, load(builder, plus(builder, high_at, first // 32 * 4), I32))
            high = _bits(builder, codes, word, first % 32)
        number = _number(builder, isa, codes, code, high, affine)
        store(builder, number, plus(builder, to, 4 * first))


def _spread(builder: Builder, codes: Codes, at: ir.Value, first: int) -> ir.Value:
    """The codes from element `first` on, each at the bottom of its lane, their words above them."""
    each = 32 // codes.bits  # elements of a word
    count = LANES // each
    words = load(builder, plus(builder, at, first // each * 4), ir.VectorType(I32, count))
    lanes = ir.Constant(V_I32, [lane // each for lane in range(LANES)])
    shifts = ir.Constant(V_I32, [lane % each * codes.bits for lane in range(LANES)])
    return builder.lshr(builder.shuffle_vector(words, words, lanes), shifts)


def _bits(builder: Builder, codes: Codes, word: ir.Value, first: int) -> ir.Value:
    """One bit a lane, from bit `first` on: as the sign, or above the other bits of a code."""
    lanes = range(first, first + LANES)
    if codes.table:
        return builder.shl(word, ir.Constant(V_I32, [31 - lane for lane in lanes]))
    mask = ir.Constant(V_I32, [_signed(1 << lane) for lane in lanes])
    is_set = builder.icmp_unsigned("!=", builder.and_(word, mask), ir.Constant(V_I32, None))
    return builder.select(is_set, constant_splat(1 << codes.bits, V_I32), ir.Constant(V_I32, None))


def _signed(bits: int) -> int:
    return bits - (1 << 32) if bits >> 31 else bits


def _affine(
    builder: Builder, codes: Codes, field: Callable[[int], ir.Value]
) -> tuple[ir.Value, ir.Value | None]:
    """Scale and what is added to scale * code."""
    scale = field(0)
    if codes.minimum:
        return scale, field(1)
    if not codes.zero:
        return scale, None
    return scale, builder.fmul(scale, constant_splat(-codes.zero, V_F32))


def _number(
    builder: Builder,
    isa: str,
    codes: Codes,
    code: ir.Value,
    high: ir.Value | None,
    affine: tuple[ir.Value, ir.Value | None],
) -> ir.Value:
    scale, added = affine
    if codes.table:
        if high is None:
            return builder.fmul(look_up(builder, isa, codes.table, code), scale)
        return builder.fmul(either(builder, isa, codes.table, code, high), scale)
    code = builder.and_(code, constant_splat((1 << codes.bits) - 1, V_I32))
    if high is not None:
        code = builder.or_(code, builder.and_(high, constant_splat(1 << codes.bits, V_I32)))
    number = builder.sitofp(code, V_F32)
    return builder.fmul(number, scale) if added is None else fma(builder, number, scale, added)
