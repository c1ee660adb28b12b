"""Weight codes out of a tile: bit planes to unsigned bytes, sixteen rows by four inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from llvmlite import ir

from turbodflash_kernels._cpu import layout
from turbodflash_kernels._cpu.emit import (
    I8,
    I16,
    I32,
    Builder,
    call,
    constant_splat,
    load,
    plus,
)
from turbodflash_kernels.planar import Format

V_I8 = ir.VectorType(I8, 64)
HALF_I8 = ir.VectorType(I8, 32)


Planes: TypeAlias = Sequence[tuple[int, ir.Value]]
"""(bits, address) of a block's bit planes, the one of the lowest bits first."""


def zero_of(fmt: Format) -> int:
    """What is to be taken from a code; values of a table come with 128 added."""
    return 128 if fmt.table else fmt.zero


def most_code(fmt: Format) -> int:
    """The largest unsigned byte that a code becomes."""
    return max(fmt.table) + 128 if fmt.table else (1 << fmt.bits) - 1


def planes_of(builder: Builder, bits: int, at: ir.Value) -> list[tuple[int, ir.Value]]:
    """Those of a block of codes that lie together (see layout.py)."""
    planes = []
    for each in layout.PLANES[bits]:
        planes.append((each, at))
        at = plus(builder, at, layout.TILE * layout.BLOCK * each // 8)
    return planes


def step_codes(builder: Builder, fmt: Format, isa: str, planes: Planes, step: int) -> ir.Value:
    """The 64 codes of one step as unsigned bytes; of a table, its values + 128."""
    codes = _from_planes(builder, planes, step)
    return _look_up(builder, isa, fmt.table, codes) if fmt.table else codes


def _from_planes(builder: Builder, planes: Planes, step: int) -> ir.Value:
    codes, low = None, 0
    for bits, at in planes:
        vector = load(builder, plus(builder, at, 64 * (step % bits)), V_I8)
        part = _field(builder, vector, bits, bits * (step // bits) - low, low)
        codes = part if codes is None else builder.or_(codes, part)
        low += bits
    assert codes is not None
    return codes


def _field(builder: Builder, vector: ir.Value, bits: int, right: int, low: int) -> ir.Value:
    """(vector >> right) & (ones << low), byte by byte; the shift runs on wider lanes."""
    if bits == 8:
        return vector
    wide = ir.VectorType(I16, 32)
    shifted = builder.bitcast(vector, wide)
    if right > 0:
        shifted = builder.lshr(shifted, constant_splat(right, wide))
    elif right < 0:
        shifted = builder.shl(shifted, constant_splat(-right, wide))
    mask = constant_splat(((1 << bits) - 1) << low, V_I8)
    return builder.and_(builder.bitcast(shifted, V_I8), mask)


def halves(builder: Builder, vector: ir.Value) -> list[ir.Value]:
    def take(first: int) -> ir.Value:
        lanes = ir.Constant(ir.VectorType(I32, 32), list(range(first, first + 32)))
        return builder.shuffle_vector(vector, vector, lanes)

    return [take(0), take(32)]


def _look_up(builder: Builder, isa: str, table: tuple[int, ...], codes: ir.Value) -> ir.Value:
    values = [v + 128 for v in table] * (16 // len(table))
    if isa == "avx512_vnni":
        entries = ir.Constant(V_I8, values * 4)
        return call(builder, "llvm.x86.avx512.pshuf.b.512", V_I8, entries, codes)
    if isa in ("avx2", "avx_vnni"):
        entries = ir.Constant(HALF_I8, values * 2)
        low, high = (
            call(builder, "llvm.x86.avx2.pshuf.b", HALF_I8, entries, part)
            for part in halves(builder, codes)
        )
        both = ir.Constant(ir.VectorType(I32, 64), list(range(64)))
        return builder.shuffle_vector(low, high, both)
    return _select_tree(builder, values, codes, bit=3)


def _select_tree(builder: Builder, values: list[int], codes: ir.Value, bit: int) -> ir.Value:
    if bit < 0:
        return constant_splat(values[0], V_I8)
    half = len(values) // 2
    one = builder.and_(codes, constant_splat(1 << bit, V_I8))
    is_set = builder.icmp_unsigned("!=", one, ir.Constant(V_I8, None))
    return builder.select(
        is_set,
        _select_tree(builder, values[half:], codes, bit - 1),
        _select_tree(builder, values[:half], codes, bit - 1),
    )
