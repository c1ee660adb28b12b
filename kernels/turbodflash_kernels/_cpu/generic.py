"""Multiplying weight codes with activation codes on any machine: what the others do better."""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from turbodflash_kernels._cpu import layout
from turbodflash_kernels._cpu.codes import V_I8, Planes, most_code, step_codes, zero_of
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
from turbodflash_kernels._cpu.rows import INPUTS, MOST_ZERO, STEPS, TAKEN, TAKENS
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
    at_once = layout.GROUP
    """Rows whose sums fit the registers."""
    abreast = 1
    """Tiles that are computed together: a block's codes of two fit registers if there are 32."""

    def __init__(self, builder: Builder, fmt: Format, tiles: int = 1) -> None:
        self.builder, self.fmt, self.tiles = builder, fmt, tiles
        self.split = fmt.block == INPUTS
        self.parts = [range(4), range(4, STEPS)] if self.split else [range(STEPS)]
        """The steps of what has a scale of its own."""
        self.fits_byte = most_code(fmt) * len(self.parts[0]) < 256  # a sum of codes of a part

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

    def beside(self, row: ir.Value, part: int) -> Chunks | None:
        """What sums of a part begin with: what its zero takes, None if that is nothing."""
        zero = zero_of(self.fmt)
        if not zero or self.signed:
            return None
        place = TAKENS[part] if self.split else TAKEN
        taken = load(self.builder, plus(self.builder, row, place), I32)
        if zero < MOST_ZERO:
            taken = self.builder.ashr(taken, I32((MOST_ZERO // zero).bit_length() - 1))
        return [splat(self.builder, taken, self.lanes)] * (16 * self.tiles // self.lanes)

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

    def products(
        self, source: Source, rows: Values, steps: range, sums: list[Chunks | None]
    ) -> list[Chunks]:
        """sums + P over some steps, per row."""
        totals = [self.begun(before) for before in sums]
        for step in steps:
            for j, column in enumerate(self._columns([codes for (codes,) in source(step)])):
                for r, row in enumerate(rows):
                    at = plus(self.builder, row, 4 * step + j)
                    code = splat(self.builder, self.builder.sext(load(self.builder, at, I8), I32))
                    totals[r] = self.add(totals[r], [self.builder.mul(column, code)])
        return totals

    def begun(self, sums: Chunks | None) -> Chunks:
        """These sums, or new ones."""
        zeros = ir.Constant(ir.VectorType(I32, self.lanes), None)
        return sums or [zeros] * (16 * self.tiles // self.lanes)

    def _columns(self, codes: Chunks) -> Values:
        """The codes of each of a step's four inputs, <16 x i32>."""
        words = self.builder.bitcast(codes[0], V_I32)
        low_byte = constant_splat(255, V_I32)
        return [
            self.builder.and_(self.builder.lshr(words, constant_splat(8 * j, V_I32)), low_byte)
            for j in range(4)
        ]
