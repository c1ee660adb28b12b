"""Look-ups of codes in small tables of float32, sixteen lanes at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from llvmlite import ir

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
SHUFFLE = "llvm.x86.avx2.pshuf.b"
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
    # bytes of four lanes side by side: four times the first, the second, ...
    order = [4 * (place % 4) + place // 4 for place in range(16)] * 2
    halves = []
    for first in (0, 8):
        eight = builder.bitcast(_lanes(builder, words, first), BYTES)
        together = _shuffled(builder, eight, order)
        low = builder.and_(together, constant_splat(15, BYTES))
        high = builder.and_(_shifted(builder, together), constant_splat(15, BYTES))
        pairs = zip(_floats(builder, table, low), _floats(builder, table, high), strict=True)
        halves.append([number for pair in pairs for number in pair])
    return [_joined(builder, *pair) for pair in zip(*halves, strict=True)]


def nibbles_of_rows(builder: Builder, table: Sequence[float], words: ir.Value) -> list[ir.Value]:
    """What the 32 nibbles of four words stand for, in their order: two vectors. By AVX2."""
    both = builder.shuffle_vector(words, words, ir.Constant(HALF_I32, [0, 1, 2, 3, 0, 1, 2, 3]))
    # elements 0-3, 8-11, ... of 32 in the lower half, 4-7, 12-15, ... in the upper; two a byte
    order = [
        (8 * (place // 4) + 4 * half + place % 4) // 2 for half in (0, 1) for place in range(16)
    ]
    spread = _shuffled(builder, builder.bitcast(both, BYTES), order)
    even = builder.and_(spread, ir.Constant(BYTES, [15, 0] * 16))
    odd = builder.and_(_shifted(builder, spread), ir.Constant(BYTES, [0, 15] * 16))
    eights = _floats(builder, table, builder.or_(even, odd))
    return [_joined(builder, *eights[:2]), _joined(builder, *eights[2:])]


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
        _interleaved(builder, planes[i], planes[i + 1], upper) for upper in (0, 1) for i in (0, 2)
    ]
    words = [builder.bitcast(vector, ir.VectorType(I16, 16)) for vector in sixteens]
    return [
        builder.bitcast(_interleaved(builder, words[i], words[i + 1], upper), HALF_F32)
        for i in (0, 2)
        for upper in (0, 1)
    ]


def _interleaved(builder: Builder, a: ir.Value, b: ir.Value, upper: int) -> ir.Value:
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
