"""Sums of products of whole numbers by AVX2, 256 bits at a time."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from turbodflash_kernels._cpu.emit import (
    F32,
    I32,
    I64,
    Builder,
    Values,
    call,
    constant_splat,
    load,
    splat,
)
from turbodflash_kernels._cpu.tables import BYTES, HALF_F32, HALF_I32, SHUFFLE, WORDS, interleaved


def shuffled(builder: Builder, a: ir.Value, b: ir.Value, lanes: Sequence[int]) -> ir.Value:
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(I32, len(lanes)), list(lanes)))


def sums_of_pairs(builder: Builder, a: ir.Value, b: ir.Value) -> ir.Value:
    """a[2 i] * b[2 i] + a[2 i + 1] * b[2 i + 1], sixteen numbers of 16 bits each."""
    return call(builder, "llvm.x86.avx2.pmadd.wd", HALF_I32, a, b)


def digits_of(levels: Sequence[float], most: int) -> tuple[tuple[list[int], list[int]], float]:
    """Levels as whole numbers of a unit, up to `most`: their two digits, and the unit.

    A level is unit * (first + 128 * second), up to rounding; digits are -64 to 63.
    """
    unit = max(map(abs, levels)) / most
    whole = [round(level / unit) for level in levels]
    first = [(number + 64) % 128 - 64 for number in whole]
    second = [(number - digit) // 128 for number, digit in zip(whole, first, strict=True)]
    assert all(-64 <= digit < 64 for digit in second)
    return (first, second), unit


def levels_of_pairs(
    builder: Builder, digits: tuple[list[int], list[int]], codes: Values, upper: int
) -> Values:
    """What the lower, or upper, halves of two times 32 bytes stand for, added up, as 16 bits: of
    the first eight bytes of each 16, and of the others."""
    found = []
    for each in codes:
        if upper:
            shifted = builder.lshr(builder.bitcast(each, WORDS), constant_splat(4, WORDS))
            each = builder.bitcast(shifted, BYTES)
        found.append(builder.and_(each, constant_splat(15, BYTES)))
    low, high = (
        builder.add(
            *(
                call(builder, SHUFFLE, BYTES, ir.Constant(BYTES, [*table] * 2), code)
                for code in found
            )
        )
        for table in digits
    )
    weights = ir.Constant(BYTES, [1, 128] * 16)
    return [
        call(
            builder,
            "llvm.x86.avx2.pmadd.ub.sw",
            WORDS,
            weights,
            interleaved(builder, low, high, part),
        )
        for part in (0, 1)
    ]


def two_at(builder: Builder, address: ir.Value) -> ir.Value:
    """Two numbers of 16 bits, eight times."""
    return builder.bitcast(splat(builder, load(builder, address, I32), 8), WORDS)


def four_at(builder: Builder, address: ir.Value) -> ir.Value:
    """Four numbers of 16 bits, four times."""
    return builder.bitcast(splat(builder, load(builder, address, I64), 4), WORDS)


def float_at(builder: Builder, address: ir.Value) -> ir.Value:
    return splat(builder, load(builder, address, F32), HALF_F32.count)
