"""Look-ups of codes in small tables of float32, sixteen lanes at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from turbodflash_kernels._cpu.emit import (
    F32,
    I8,
    I16,
    I32,
    V_F32,
    V_I32,
    Builder,
    call,
    constant_splat,
)

BYTES = ir.VectorType(I8, 32)
WORDS = ir.VectorType(I16, 16)
SHUFFLE = "llvm.x86.avx2.pshuf.b"
UNIT = 2.0**-27
"""What all levels of turbo4 are whole numbers of."""
HALF_F32, HALF_I32 = ir.VectorType(F32, 8), ir.VectorType(I32, 8)


def look_up(builder: Builder, isa: str, table: Sequence[float], words: ir.Value) -> ir.Value:
    """table[code] of 4, 8 or 16 entries; the code is what the lowest bits of a lane say, whatever
    is above them."""
    if len(table) == 1:
        return constant_splat(table[0], V_F32)
    if isa == "generic" or len(table) == 16:
        return either(builder, isa, table, words, at_top(builder, words, len(table)))
    return _permuted(builder, table, words)


def either(
    builder: Builder, isa: str, table: Sequence[float], words: ir.Value, top: ir.Value
) -> ir.Value:
    """As `look_up`, with the highest bit of the code as the sign of the lanes of `top`."""
    half = len(table) // 2
    upper = builder.icmp_signed("<", top, ir.Constant(V_I32, None))
    return builder.select(
        upper,
        look_up(builder, isa, table[half:], words),
        look_up(builder, isa, table[:half], words),
    )


def at_top(builder: Builder, words: ir.Value, entries: int) -> ir.Value:
    """The highest bit of a code moved to the sign."""
    return builder.shl(words, constant_splat(33 - entries.bit_length(), V_I32))


def _permuted(builder: Builder, table: Sequence[float], words: ir.Value) -> ir.Value:
    """By the instructions of AVX2 that permute eight lanes, or four."""
    name = "llvm.x86.avx2.permps" if len(table) == 8 else "llvm.x86.avx.vpermilvar.ps.256"
    entries = ir.Constant(HALF_F32, list(table) * (8 // len(table)))
    halves = [
        call(builder, name, HALF_F32, entries, _lanes(builder, words, first)) for first in (0, 8)
    ]
    return builder.shuffle_vector(*halves, ir.Constant(V_I32, list(range(16))))


def _lanes(builder: Builder, words: ir.Value, first: int) -> ir.Value:
    lanes = ir.Constant(HALF_I32, list(range(first, first + 8)))
    return builder.shuffle_vector(words, words, lanes)


def nibbles_of_tiles(builder: Builder, table: Sequence[float], words: ir.Value) -> list[ir.Value]:
    """What the eight nibbles of each lane stand for in a table of sixteen: eight vectors, the
    lowest nibble's first. By AVX2."""
    return _of_tiles([words], builder, lambda codes: _floats(builder, table, *codes))


def sums_of_tiles(
    builder: Builder, table: Sequence[float], words: ir.Value, others: ir.Value
) -> list[ir.Value]:
    """As `nibbles_of_tiles`, of two words for each lane: what both stand for, added up, in UNIT."""
    return _of_tiles([words, others], builder, lambda codes: _sums(builder, table, *codes))


def nibbles_of_rows(builder: Builder, table: Sequence[float], words: ir.Value) -> list[ir.Value]:
    """What the 32 nibbles of four words stand for, in their order: two vectors. By AVX2."""
    return _of_row(_floats(builder, table, _row_codes(builder, words)), builder)


def sums_of_rows(
    builder: Builder, table: Sequence[float], words: ir.Value, others: ir.Value
) -> list[ir.Value]:
    """As `nibbles_of_rows`, of two times four words: what both stand for, added up, in UNIT."""
    codes = (_row_codes(builder, four) for four in (words, others))
    return _of_row(_sums(builder, table, *codes), builder)


def _of_tiles(
    words: Sequence[ir.Value],
    builder: Builder,
    found: Callable[[list[ir.Value]], list[ir.Value]],
) -> list[ir.Value]:
    # bytes of four lanes side by side: four times the first, the second, ...
    order = [4 * (place % 4) + place // 4 for place in range(16)] * 2
    mask, halves = constant_splat(15, BYTES), []
    for first in (0, 8):
        together = [
            _shuffled(builder, builder.bitcast(_lanes(builder, each, first), BYTES), order)
            for each in words
        ]
        low = found([builder.and_(each, mask) for each in together])
        high = found([builder.and_(_shifted(builder, each), mask) for each in together])
        halves.append([number for pair in zip(low, high, strict=True) for number in pair])
    return [_joined(builder, *pair) for pair in zip(*halves, strict=True)]


def _row_codes(builder: Builder, words: ir.Value) -> ir.Value:
    """The nibbles of four words as bytes: elements 0-3, 8-11, ... in the lower half, 4-7, 12-15,
    ... in the upper."""
    both = builder.shuffle_vector(words, words, ir.Constant(HALF_I32, [0, 1, 2, 3, 0, 1, 2, 3]))
    order = [
        (8 * (place // 4) + 4 * half + place % 4) // 2 for half in (0, 1) for place in range(16)
    ]
    spread = _shuffled(builder, builder.bitcast(both, BYTES), order)  # two in a byte
    even = builder.and_(spread, ir.Constant(BYTES, [15, 0] * 16))
    odd = builder.and_(_shifted(builder, spread), ir.Constant(BYTES, [0, 15] * 16))
    return builder.or_(even, odd)


def _of_row(eights: Sequence[ir.Value], builder: Builder) -> list[ir.Value]:
    return [_joined(builder, *eights[:2]), _joined(builder, *eights[2:])]


def _sums(
    builder: Builder, table: Sequence[float], first: ir.Value, second: ir.Value
) -> list[ir.Value]:
    """Table entries of 32 bytes plus those of 32 others, in UNIT, in the order of `_floats`.

    Entries are whole numbers of UNIT, of four digits of 7 bits. So digits can be added up as bytes,
    and numbers are put together once for both; what is rounded is their exact sum.
    """
    digits = [
        builder.add(
            call(builder, SHUFFLE, BYTES, entries, first),
            call(builder, SHUFFLE, BYTES, entries, second),
        )
        for entries in (ir.Constant(BYTES, [*map(int, part)] * 2) for part in _digits(table))
    ]
    weights = ir.Constant(BYTES, [1, 128] * 16)
    pairs = [
        call(builder, "llvm.x86.avx2.pmadd.ub.sw", WORDS, weights, sixteen)
        for upper in (0, 1)
        for sixteen in (interleaved(builder, digits[i], digits[i + 1], upper) for i in (0, 2))
    ]
    more = ir.Constant(WORDS, [1, 128 * 128] * 8)
    return [
        builder.sitofp(
            call(
                builder,
                "llvm.x86.avx2.pmadd.wd",
                HALF_I32,
                interleaved(builder, pairs[i], pairs[i + 1], upper),
                more,
            ),
            HALF_F32,
        )
        for i in (0, 2)
        for upper in (0, 1)
    ]


def _digits(table: Sequence[float]) -> list[NDArray[np.int64]]:
    """Four digits of each entry, of -64 to 63 each, the lowest first."""
    left = np.array(table, np.float64) / UNIT
    assert (left == np.rint(left)).all()
    digits, rest = [], left.astype(np.int64)
    for _ in range(4):
        digit = (rest + 64) % 128 - 64
        digits.append(digit)
        rest = (rest - digit) // 128
    assert not rest.any()
    return digits


def _floats(builder: Builder, table: Sequence[float], codes: ir.Value) -> list[ir.Value]:
    """Table entries of 32 bytes, put together from four tables of their bytes.

    Vector i has the entries of the bytes 4 i.. of both halves.
    """
    parts = np.array(table, "<f4").view(np.uint8).reshape(16, 4).T
    planes = [
        call(builder, SHUFFLE, BYTES, ir.Constant(BYTES, [*map(int, part)] * 2), codes)
        for part in parts
    ]
    sixteens = [
        interleaved(builder, planes[i], planes[i + 1], upper) for upper in (0, 1) for i in (0, 2)
    ]
    words = [builder.bitcast(vector, ir.VectorType(I16, 16)) for vector in sixteens]
    return [
        builder.bitcast(interleaved(builder, words[i], words[i + 1], upper), HALF_F32)
        for i in (0, 2)
        for upper in (0, 1)
    ]


def interleaved(builder: Builder, a: ir.Value, b: ir.Value, upper: int) -> ir.Value:
    """The lower, or upper, elements of each 16 bytes of a and b by turns."""
    count, each = a.type.count, a.type.count // 2
    lanes = []
    for half in (0, 1):
        for i in range(each // 2):
            place = half * each + upper * (each // 2) + i
            lanes += [place, count + place]
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(I32, count), lanes))


def _shuffled(builder: Builder, vector: ir.Value, order: list[int]) -> ir.Value:
    """Bytes of each half in another order."""
    return call(builder, SHUFFLE, BYTES, vector, ir.Constant(BYTES, order))


def _shifted(builder: Builder, vector: ir.Value) -> ir.Value:
    """Bytes with their upper nibble below, and something above it."""
    words = builder.bitcast(vector, ir.VectorType(I16, 16))
    return builder.bitcast(builder.lshr(words, constant_splat(4, words.type)), BYTES)


def _joined(builder: Builder, low: ir.Value, high: ir.Value) -> ir.Value:
    return builder.shuffle_vector(low, high, ir.Constant(V_I32, list(range(16))))
