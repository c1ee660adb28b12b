"""Activations as integers: what dots.py multiplies weight codes with.

Of each half block of 16 inputs, the middle between its extremes and the step that reaches from
there to both; of each block of 32, a float unit of which both are whole multiples. Four blocks at a
time, so that what there is one of in a half block fills a vector, too.
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
from turbodflash_kernels._cpu.rows import INFO, MOST_ZERO

BLOCKS = 4  # that are quantised together
HALVES = 2 * BLOCKS
VALUES = layout.BLOCK * BLOCKS
MOST_CODE, MOST_FACTOR, MOST_MIDDLE = 126.0, 127.0, 32000.0
SMALLEST_UNIT = 1e-30  # all zeros, or so small that their products vanish
EACH_F32, EACH_I32 = ir.VectorType(F32, HALVES), ir.VectorType(I32, HALVES)


def quantiser(factors_twice: bool) -> Any:
    """quantise_blocks(values, lines, apart): f32 [4 * 32] to four lines, so far apart (rows.py).

    factors_twice: both halves of a factor's word shall hold it, else the lower one alone.
    """
    return function("quantise_blocks", 3, lambda builder, args: _emit(builder, args, factors_twice))


def _emit(builder: Builder, args: Values, factors_twice: bool) -> None:
    values, lines, apart = args
    halves = [load(builder, plus(builder, values, 64 * h), V_F32) for h in range(HALVES)]
    most, least = (_each(builder, halves, _either(builder, how)) for how in (">", "<"))
    half = constant_splat(0.5, EACH_F32)
    spread = builder.fmul(half, builder.fsub(most, least))
    middle = builder.fmul(half, builder.fadd(most, least))
    unit = _unit(builder, spread, middle)
    inverse = builder.fdiv(constant_splat(1.0, EACH_F32), unit)
    factors, middles = _factors(builder, spread, inverse), _middles(builder, middle, inverse)
    rounded = _codes(builder, halves, unit, factors, middles)
    places = row_addresses(builder, lines, apart, BLOCKS)
    for h, code in enumerate(rounded):
        lanes = builder.trunc(code, ir.VectorType(I8, code.type.count))
        store(builder, lanes, plus(builder, places[h // 2], 16 * (h % 2)))
    zeros = builder.mul(factors, _each(builder, rounded, builder.add))
    infos = _infos(builder, unit, factors, middles, zeros, factors_twice)
    for place, words in zip(places, infos, strict=True):
        store(builder, words, plus(builder, place, INFO))


def _unit(builder: Builder, spread: ir.Value, middle: ir.Value) -> ir.Value:
    """Of a block, in the lanes of both its halves."""
    larger = _either(builder, ">")
    size = call(builder, f"llvm.fabs.v{HALVES}f32", EACH_F32, middle)
    steps = constant_splat(1.0 / (MOST_CODE * MOST_FACTOR), EACH_F32)
    places = constant_splat(1.0 / MOST_MIDDLE, EACH_F32)
    needed = larger(
        builder.fmul(larger(spread, _other_half(builder, spread)), steps),
        builder.fmul(larger(size, _other_half(builder, size)), places),
    )
    return larger(needed, constant_splat(SMALLEST_UNIT, EACH_F32))


def _factors(builder: Builder, spread: ir.Value, inverse: ir.Value) -> ir.Value:
    """The smallest whole numbers of units whose 126 multiples reach the spread."""
    wanted = builder.fmul(builder.fmul(spread, constant_splat(1.0 / MOST_CODE, EACH_F32)), inverse)
    whole = builder.fptosi(call(builder, f"llvm.ceil.v{HALVES}f32", EACH_F32, wanted), EACH_I32)
    one = constant_splat(1, EACH_I32)
    return builder.select(builder.icmp_signed(">", whole, one), whole, one)


def _middles(builder: Builder, middle: ir.Value, inverse: ir.Value) -> ir.Value:
    nearest = builder.fadd(builder.fmul(middle, inverse), constant_splat(0.5, EACH_F32))
    return builder.fptosi(call(builder, f"llvm.floor.v{HALVES}f32", EACH_F32, nearest), EACH_I32)


def _codes(
    builder: Builder, halves: Values, unit: ir.Value, factors: ir.Value, middles: ir.Value
) -> Values:
    """(x - middle units) / (factor units), rounded, ties to even: <16 x i32> per half block."""
    around = builder.fmul(builder.sitofp(middles, EACH_F32), unit)
    step = builder.fmul(builder.sitofp(factors, EACH_F32), unit)
    inverse = builder.fdiv(constant_splat(1.0, EACH_F32), step)
    codes = []
    for h, x in enumerate(halves):
        from_middle = builder.fsub(x, splat(builder, builder.extract_element(around, I32(h))))
        steps = builder.fmul(from_middle, splat(builder, builder.extract_element(inverse, I32(h))))
        codes.append(builder.fptosi(call(builder, "llvm.rint.v16f32", V_F32, steps), V_I32))
    return codes


def _infos(
    builder: Builder,
    unit: ir.Value,
    factors: ir.Value,
    middles: ir.Value,
    zeros: ir.Value,
    factors_twice: bool,
) -> Values:
    """The words about each block, <8 x i32>, in the order that rows.py names."""
    sixteen = constant_splat(16, EACH_I32)
    all_zeros = builder.add(zeros, _other_half(builder, zeros))
    all_middles = builder.add(middles, _other_half(builder, middles))
    total = builder.add(all_zeros, builder.mul(all_middles, sixteen))
    sums = builder.fmul(unit, builder.sitofp(total, EACH_F32))
    words_of_factors = factors
    if factors_twice:
        words_of_factors = builder.or_(factors, builder.shl(factors, sixteen))
    low_middles = builder.and_(middles, constant_splat(0xFFFF, EACH_I32))
    both_middles = builder.or_(low_middles, builder.shl(_other_half(builder, middles), sixteen))
    first, second = range(0, HALVES, 2), range(1, HALVES, 2)
    words = (
        (builder.bitcast(unit, EACH_I32), first),
        (builder.bitcast(sums, EACH_I32), first),
        (words_of_factors, first),
        (words_of_factors, second),
        (both_middles, first),
        (zeros, first),
        (zeros, second),
        (builder.mul(all_zeros, constant_splat(-MOST_ZERO, EACH_I32)), first),
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
