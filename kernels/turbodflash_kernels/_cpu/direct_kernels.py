"""Attention of the few queries of one row, with keys and values decoded as they are met.

One to four queries (see chunk_words) do not pay for a decoded copy, which takes a store and a load
for each number. The arithmetic is that of the copy, in the same order, so the bits are the same.

scores(queries, tile, tile_bytes, blocks, out, later, size): 32 keys, two tiles; queries f32
[n, numbers].
sums(weights, rows, row_bytes, count, blocks, out, out_bytes, later, size): `count` values, a row
each.
Scores and weights of a query lie SCORE_BYTES apart; the rest is as in chunk_kernels and
decode_kernels. Memory is asked for the `size` bytes at `later` meanwhile, some at every step: a
core has room for two dozen lines on their way, and stands still when it is to ask for more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from turbodflash_kernels._cpu.chunk_words import SCORE_BYTES
from turbodflash_kernels._cpu.emit import (
    F16,
    I8,
    I16,
    I64,
    Builder,
    Values,
    emit_prefetch,
    function,
    load,
    offset,
    plus,
    row_addresses,
    splat,
    store,
)
from turbodflash_kernels._cpu.products import added, loop, many_registers, places, register

BLOCK_BYTES = 34  # of q8_0


@dataclass(slots=True)
class _Wish:
    """Memory that will be wanted: from `later` on, `pace` bytes a step.

    Cores with AVX-512 have fewer lines on their way to the first cache than to the second.
    """

    builder: Builder
    later: ir.Value
    pace: ir.Value

    def ask(self, index: ir.Value) -> None:
        at = self.builder.add(self.later, self.builder.mul(index, self.pace))
        emit_prefetch(self.builder, at, 2 if many_registers() else 1)


def build(name: str, type: str, queries: int) -> Any:
    return {"scores": scores, "sums": sums}[name](type, queries)


def scores(type: str, queries: int) -> Any:
    """Two tiles at once, of four queries one after the other if their sums would not fit."""
    tiles = 2 if queries < 4 or many_registers() else 1

    def emit(builder: Builder, args: Values) -> None:
        kind = register()
        pieces = range(16 * tiles // kind.count)
        rows_at, tile, tile_bytes, blocks, out, later, pace = args
        numbers = blocks if type == "f16" else builder.mul(blocks, I64(32))
        rows = row_addresses(builder, rows_at, builder.mul(numbers, I64(4)), queries)
        apart = [builder.mul(tile_bytes, I64(kind.count * i // 16)) for i in pieces]
        zeros: Values = [ir.Constant(kind, None)] * (queries * len(pieces))
        make = _half_scores if type == "f16" else _byte_scores
        totals = make(builder, rows, tile, apart, blocks, zeros, _Wish(builder, later, pace))
        outs = places(builder, row_addresses(builder, out, I64(SCORE_BYTES), queries), pieces)
        for total, at in zip(totals, outs, strict=True):
            store(builder, total, at)

    run = function(f"scores_{type}_{queries}", 7, emit)

    def kernel(queries_at, tile, tile_bytes, blocks, out, later, size):
        numbers = blocks if type == "f16" else 32 * blocks
        share = size * tiles // 2
        run(queries_at, tile, tile_bytes, blocks, out, later, share // numbers)
        if tiles == 1:
            run(queries_at, tile + tile_bytes, tile_bytes, blocks, out + 64, later + share,
                share // numbers)  # fmt: skip

    return kernel


def _half_scores(
    builder: Builder,
    rows: Values,
    tile: ir.Value,
    apart: Values,
    numbers: ir.Value,
    sums: Values,
    wish: _Wish,
) -> Values:
    def step(index: ir.Value, at: ir.Value, sums: Values) -> Values:
        wish.ask(index)

        def lanes(piece: int) -> ir.Value:
            return _halves(builder, builder.add(at, apart[piece]), piece)

        return added(builder, rows, index, lanes, sums)

    return loop(builder, numbers, tile, I64(32), sums, step)


def _byte_scores(
    builder: Builder,
    rows: Values,
    tile: ir.Value,
    apart: Values,
    blocks: ir.Value,
    sums: Values,
    wish: _Wish,
) -> Values:
    with builder.goto_entry_block():
        scales = [builder.alloca(register()) for _ in apart]

    def block(index: ir.Value, at: ir.Value, sums: Values) -> Values:
        for piece, (by, scale) in enumerate(zip(apart, scales, strict=True)):
            builder.store(_halves(builder, builder.add(at, by), piece), scale)
        first = builder.mul(index, I64(128))
        mine = [builder.add(row, first) for row in rows]
        before = builder.mul(index, I64(32))

        def step(index: ir.Value, at: ir.Value, sums: Values) -> Values:
            wish.ask(builder.add(before, index))

            def lanes(piece: int) -> ir.Value:
                code = _bytes(builder, builder.add(at, apart[piece]), piece)
                return builder.fmul(code, builder.load(scales[piece], typ=code.type))

            return added(builder, mine, index, lanes, sums)

        return loop(builder, I64(32), plus(builder, at, 32), I64(16), sums, step)

    return loop(builder, blocks, tile, I64(16 * BLOCK_BYTES), sums, block)


def sums(type: str, queries: int) -> Any:
    """32 elements at once, of four queries 16 if their sums would not fit."""
    at_once = 32 if queries < 4 or many_registers() else 16
    wide, narrow = (_sums(type, queries, size) for size in (at_once, 16))

    def kernel(weights, first, row_bytes, count, blocks, out, out_bytes, later, size):
        numbers = blocks if type == "f16" else 32 * blocks
        whole = numbers // at_once * at_once
        share = size * at_once // numbers
        for d in range(0, whole, at_once):
            wide(weights, first, row_bytes, count, d, out + 4 * d, out_bytes, later, share // count)
            later += share
        if whole < numbers:
            narrow(weights, first, row_bytes, count, whole, out + 4 * whole, out_bytes, later,
                   share // count)  # fmt: skip

    return kernel


def _sums(type: str, queries: int, numbers: int) -> Any:
    """Elements `first`.. of the values."""

    def emit(builder: Builder, args: Values) -> None:
        kind = register()
        pieces = range(numbers // kind.count)
        weights, start, row_bytes, count, first, out, out_bytes, later, pace = args
        rows = row_addresses(builder, weights, I64(SCORE_BYTES), queries)
        outs = places(builder, row_addresses(builder, out, out_bytes, queries), pieces)
        if type == "f16":
            codes_at = builder.add(start, builder.mul(first, I64(2)))
        else:
            start = offset(builder, start, builder.lshr(first, I64(5)), BLOCK_BYTES)
            codes_at = plus(builder, builder.add(start, builder.and_(first, I64(31))), 2)
        to_codes = builder.sub(codes_at, start)
        slot = _slot_in_memory(builder)
        wish = _Wish(builder, later, pace)

        def step(index: ir.Value, at: ir.Value, sums: Values) -> Values:
            wish.ask(index)
            if type == "q8_0":
                builder.store(_scale(builder, at), slot)

            def lanes(piece: int) -> ir.Value:
                size = kind.count * (2 if type == "f16" else 1)
                codes = plus(builder, builder.add(at, to_codes), size * piece)
                if type == "f16":
                    return _halves(builder, codes)
                return builder.fmul(_bytes(builder, codes), builder.load(slot, typ=kind))

            return added(builder, rows, index, lanes, sums)

        totals = [load(builder, at, kind) for at in outs]
        totals = loop(builder, count, start, row_bytes, totals, step)
        for total, at in zip(totals, outs, strict=True):
            store(builder, total, at)

    return function(f"sums_{type}_{queries}x{numbers}", 9, emit)


def _slot_in_memory(builder: Builder) -> ir.Value:
    """Room for a register on the stack that is really there, whatever the compiler thinks: one more
    would cost a sum its own."""
    with builder.goto_entry_block():
        slot = builder.alloca(register())
    if many_registers():
        return slot
    seen = ir.FunctionType(ir.VoidType(), [slot.type])
    builder.asm(seen, "", "r,~{memory}", [slot], side_effect=True)
    return slot


def _scale(builder: Builder, at: ir.Value) -> ir.Value:
    """The float16 there, in all lanes; spread first, see decode_kernels."""
    kind = register()
    repeated = splat(builder, load(builder, at, I16), kind.count)
    return builder.fpext(builder.bitcast(repeated, ir.VectorType(F16, kind.count)), kind)


def _halves(builder: Builder, at: ir.Value, piece: int = 0) -> ir.Value:
    """A piece of the sixteen float16 there, or what lies there, as float32."""
    kind = register()
    at = plus(builder, at, 2 * kind.count * piece % 32)
    return builder.fpext(load(builder, at, ir.VectorType(F16, kind.count)), kind)


def _bytes(builder: Builder, at: ir.Value, piece: int = 0) -> ir.Value:
    """The same of sixteen int8."""
    kind = register()
    at = plus(builder, at, kind.count * piece % 16)
    return builder.sitofp(load(builder, at, ir.VectorType(I8, kind.count)), kind)
