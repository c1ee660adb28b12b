"""Multiplying weight codes with activation codes on any machine: what the others do better."""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from turbodflash_kernels._cpu import layout
from turbodflash_kernels._cpu.codes import V_I8, Planes, step_codes, zero_of
from turbodflash_kernels._cpu.emit import (
    I8,
    I32,
    V_I32,
    Builder,
    Values,
    constant_splat,
    load,
    plus,
    splat,
)
from turbodflash_kernels._cpu.rows import FACTORS, INPUTS, MIDDLES, MOST_ZERO, TAKEN, ZEROS
from turbodflash_kernels.planar import Format

Chunks = list[ir.Value]
"""Sixteen lanes of i32, of each tile, in the pieces in which a machine holds them."""

Operand = tuple[ir.Value, ...]
"""A piece of a step's codes in the form in which a machine multiplies it."""

Source = Callable[[int], list[Operand]]
"""The operands of a step."""

Tally = list[ir.Value]
"""A sum of codes under way, in whatever form suits a machine; empty at first."""


class Generic:
    """Multiplications of 32 bits, for any machine. The others replace what they do better."""

    name = "generic"
    signed = False  # whether products are of code - zero already
    lanes = 16
    byte: ir.Type = V_I8
    factors_twice = False  # whether rows know their factors in both halves of a word
    at_once = layout.GROUP
    """Rows whose sums fit the registers."""
    abreast = 1
    """Tiles that are computed together: a block's codes of two fit registers if there are 32."""

    def __init__(self, builder: Builder, fmt: Format, tiles: int = 1) -> None:
        self.builder, self.fmt, self.tiles = builder, fmt, tiles
        self.split = fmt.block == INPUTS

    def codes(self, planes: Planes, step: int) -> Chunks:
        return [step_codes(self.builder, self.fmt, self.name, planes, step)]

    def operands(self, codes: Chunks) -> list[Operand]:
        return [(part,) for part in codes]

    def loaded(self, places: Values) -> list[Operand]:
        """Operands that lie at these places."""
        return [(load(self.builder, place, self.byte),) for place in places]

    def places(self, base: ir.Value, step: int) -> Values:
        """Where the values of a step's operands lie."""
        size = 4 * self.lanes
        each = 64 // size * (2 if self.signed else 1)
        return [plus(self.builder, base, size * (each * step + i)) for i in range(each)]

    def beside(self, row: ir.Value, code_sums: ir.Value, half: int) -> Chunks:
        """What sums hold beside factor * P: middles, less what zeros take; of all, or of a half."""
        middles, zero = self.middles(row, code_sums, half), zero_of(self.fmt)
        if not zero or self.signed:
            return middles
        place = ZEROS[half] if self.split else TAKEN
        taken = load(self.builder, plus(self.builder, row, place), I32)
        if self.split:
            taken = self.builder.mul(taken, I32(-zero))
        elif zero < MOST_ZERO:
            taken = self.builder.ashr(taken, I32((MOST_ZERO // zero).bit_length() - 1))
        everywhere = splat(self.builder, taken, self.lanes)
        return [self.builder.add(part, everywhere) for part in middles]

    def tally(self) -> Tally:
        return []

    def count(self, tally: Tally, codes: Chunks) -> None:
        """Add the codes of one step."""
        for column in self._columns(codes):
            tally[:] = [self.builder.add(tally[0], column)] if tally else [column]

    def total(self, tally: Tally) -> ir.Value:
        """The tally as <16 x i32>."""
        return tally[0]

    def joined(self, chunks: Chunks) -> ir.Value:
        return chunks[0]

    def add(self, left: Chunks, right: Chunks) -> Chunks:
        return [self.builder.add(a, b) for a, b in zip(left, right, strict=True)]

    def word(self, address: ir.Value, kind: ir.Type) -> ir.Value:
        """Four bytes, repeated in all lanes of a chunk."""
        repeated = splat(self.builder, load(self.builder, address, I32), self.lanes)
        return self.builder.bitcast(repeated, kind)

    def middles(self, row: ir.Value, code_sums: ir.Value, half: int) -> Chunks:
        """middle * C of both halves, or of one if each has its own scale."""
        builder, sixteen = self.builder, constant_splat(16, V_I32)
        middles = self.word(plus(builder, row, MIDDLES), V_I32)
        pair = (code_sums, middles)
        high = builder.mul(*(builder.ashr(value, sixteen) for value in pair))
        if self.split and half:
            return [high]
        low = builder.mul(*(builder.ashr(builder.shl(value, sixteen), sixteen) for value in pair))
        return [low] if self.split else [builder.add(low, high)]

    def products(
        self, source: Source, rows: Values, steps: range, half: int, sums: list[Chunks] | None
    ) -> list[Chunks]:
        """sums + factor * P of one half, per row."""
        totals: Values = [ir.Constant(V_I32, None)] * len(rows)
        for step in steps:
            for j, column in enumerate(self._columns([codes for (codes,) in source(step)])):
                for r, row in enumerate(rows):
                    at = plus(self.builder, row, 4 * step + j)
                    code = splat(self.builder, self.builder.sext(load(self.builder, at, I8), I32))
                    totals[r] = self.builder.add(totals[r], self.builder.mul(column, code))
        return self.added(
            sums,
            [
                self.times_factor([total], row, half)
                for total, row in zip(totals, rows, strict=True)
            ],
        )

    def added(self, sums: list[Chunks] | None, products: list[Chunks]) -> list[Chunks]:
        if sums is None:
            return products
        return [self.add(a, b) for a, b in zip(sums, products, strict=True)]

    def times_factor(self, chunks: Chunks, row: ir.Value, half: int) -> Chunks:
        factor = self.word(plus(self.builder, row, FACTORS[half]), chunks[0].type)
        return [self.builder.mul(chunk, factor) for chunk in chunks]

    def _columns(self, codes: Chunks) -> Values:
        """The codes of each of a step's four inputs, <16 x i32>."""
        words = self.builder.bitcast(codes[0], V_I32)
        low_byte = constant_splat(255, V_I32)
        return [
            self.builder.and_(self.builder.lshr(words, constant_splat(8 * j, V_I32)), low_byte)
            for j in range(4)
        ]
