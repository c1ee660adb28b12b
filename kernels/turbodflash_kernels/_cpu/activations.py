"""Activations as integers: what dots.py multiplies weight codes with.

Of each block of 32 inputs, the middle between its extremes, and the unit whose 127 multiples reach
from there to both. Four blocks at a time, so that what there is one of in a block fills a vector,
too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from turbodflash_kernels._cpu import layout
from turbodflash_kernels._cpu.emit import (
    F32,
    I8,
    I32,
    V_F32,
    V_I32,
    Builder,
    Values,
    call,
    constant_splat,
    function,
    load,
    plus,
    row_addresses,
    splat,
    store,
)
from turbodflash_kernels._cpu.rows import INFO, MOST_INPUT, MOST_ZERO

BLOCKS = 4  # that are quantised together
HALVES = 2 * BLOCKS
VALUES = layout.BLOCK * BLOCKS
SMALLEST_UNIT = 1e-30  # all zeros, or so small that their products vanish
EACH_F32, EACH_I32 = ir.VectorType(F32, HALVES), ir.VectorType(I32, HALVES)


def _emit(builder: Builder, args: Values) -> None:
    values, lines, apart = args
    halves = [load(builder, plus(builder, values, 64 * h), V_F32) for h in range(HALVES)]
    most, least = (_of_blocks(builder, halves, how) for how in (">", "<"))
    half = constant_splat(0.5, EACH_F32)
    middle = builder.fmul(half, builder.fadd(most, least))
    spread = builder.fmul(half, builder.fsub(most, least))
    wanted = builder.fmul(spread, constant_splat(1.0 / MOST_INPUT, EACH_F32))
    unit = _either(builder, ">")(wanted, constant_splat(SMALLEST_UNIT, EACH_F32))
    codes = _codes(builder, halves, unit, middle)
    places = row_addresses(builder, lines, apart, BLOCKS)
    for h, code in enumerate(codes):
        lanes = builder.trunc(code, ir.VectorType(I8, code.type.count))
        store(builder, lanes, plus(builder, places[h // 2], 16 * (h % 2)))
    sums = _each(builder, codes, builder.add)
    for place, words in zip(places, _infos(builder, unit, middle, sums), strict=True):
        store(builder, words, plus(builder, place, INFO))


quantise_blocks = function("quantise_blocks", 3, _emit)
"""quantise_blocks(values, lines, apart): f32 [4 * 32] to four lines, so far apart (rows.py)."""


def _of_blocks(builder: Builder, halves: Values, how: str) -> ir.Value:
    """The largest or smallest of each block, in the lanes of both its halves."""
    either = _either(builder, how)
    of_halves = _each(builder, halves, either)
    return either(of_halves, _other_half(builder, of_halves))


def _codes(builder: Builder, halves: Values, unit: ir.Value, middle: ir.Value) -> Values:
    """(x - middle) / unit, rounded, ties to even: <16 x i32> per half block."""
    inverse = builder.fdiv(constant_splat(1.0, EACH_F32), unit)
    codes = []
    for h, x in enumerate(halves):
        from_middle = builder.fsub(x, splat(builder, builder.extract_element(middle, I32(h))))
        steps = builder.fmul(from_middle, splat(builder, builder.extract_element(inverse, I32(h))))
        codes.append(builder.fptosi(call(builder, "llvm.rint.v16f32", V_F32, steps), V_I32))
    return codes


def _infos(builder: Builder, unit: ir.Value, middle: ir.Value, sums: ir.Value) -> Values:
    """The words about each block, <8 x i32>, in the order that rows.py names."""
    of_blocks = builder.add(sums, _other_half(builder, sums))
    zero = constant_splat(-MOST_ZERO, EACH_I32)

    def weighted(codes: ir.Value) -> ir.Value:
        return builder.bitcast(builder.fmul(unit, builder.sitofp(codes, EACH_F32)), EACH_I32)

    first, second = range(0, HALVES, 2), range(1, HALVES, 2)
    words = (
        (builder.bitcast(unit, EACH_I32), first),
        (builder.bitcast(middle, EACH_I32), first),
        (weighted(of_blocks), first),
        (builder.mul(of_blocks, zero), first),
        (weighted(sums), first),
        (weighted(sums), second),
        (builder.mul(sums, zero), first),
        (builder.mul(sums, zero), second),
    )
    return [
        _gathered(builder, [(values, lanes[b]) for values, lanes in words]) for b in range(BLOCKS)
    ]


def _gathered(builder: Builder, parts: list[tuple[ir.Value, int]]) -> ir.Value:
    words: ir.Value = ir.Constant(ir.VectorType(I32, len(parts)), ir.Undefined)
    for i, (values, lane) in enumerate(parts):
        words = builder.insert_element(words, builder.extract_element(values, I32(lane)), I32(i))
    return words


def _each(builder: Builder, vectors: Values, combine: Callable[..., ir.Value]) -> ir.Value:
    """Each of eight vectors of sixteen lanes combined to one lane; lane h is of vector h."""
    low, high = list(range(8)), list(range(8, 16))
    parts = [combine(*(_shuffled(builder, v, v, lanes) for lanes in (low, high))) for v in vectors]
    for left, right in (
        ((0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15)),
        ((0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15)),
        ((0, 2, 8, 10, 4, 6, 12, 14), (1, 3, 9, 11, 5, 7, 13, 15)),
    ):
        half = len(parts) // 2
        parts = [
            combine(*(_shuffled(builder, a, b, lanes) for lanes in (left, right)))
            for a, b in zip(parts[:half], parts[half:], strict=True)
        ]
    return _shuffled(builder, parts[0], parts[0], (0, 2, 1, 3, 4, 6, 5, 7))


def _other_half(builder: Builder, values: ir.Value) -> ir.Value:
    return _shuffled(builder, values, values, (1, 0, 3, 2, 5, 4, 7, 6))


def _shuffled(builder: Builder, a: ir.Value, b: ir.Value, lanes: Any) -> ir.Value:
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(I32, len(lanes)), list(lanes)))


def _either(builder: Builder, how: str) -> Callable[..., ir.Value]:
    """The larger or the smaller of two, lane by lane."""
    return lambda a, b: builder.select(builder.fcmp_ordered(how, a, b), a, b)
