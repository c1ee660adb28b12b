"""Look-ups of codes in small tables of float32, sixteen lanes at a time."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from turbodflash_kernels._cpu.emit import F32, I32, V_F32, V_I32, Builder, call, constant_splat

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
