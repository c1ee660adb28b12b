"""How instruction sets multiply weight codes with activation codes, and add them up."""

from __future__ import annotations

from llvmlite import ir

from turbodflash_kernels._cpu.codes import HALF_I8, V_I8, Planes, halves, most_code
from turbodflash_kernels._cpu.emit import (
    I16,
    I32,
    V_I32,
    Builder,
    Values,
    call,
    constant_splat,
    pinned,
    plus,
)
from turbodflash_kernels._cpu.generic import Chunks, Generic, Operand, Source, Tally
from turbodflash_kernels._cpu.rows import MOST_INPUT
from turbodflash_kernels.planar import Format

HALF_I16, HALF_I32 = ir.VectorType(I16, 16), ir.VectorType(I32, 8)


class Avx512Vnni(Generic):
    """vpdpbusd on 512 bits."""

    name = "avx512_vnni"
    byte = V_I8
    width = 512
    abreast = 2

    def products(
        self, source: Source, rows: Values, steps: range, sums: list[Chunks | None]
    ) -> list[Chunks]:
        totals = [self.begun(before) for before in sums]
        for step in steps:
            operands = source(step)
            for r, row in enumerate(rows):
                four = self.word(plus(self.builder, row, 4 * step), self.byte)
                totals[r] = [
                    vpdpbusd(self.builder, self.width, total, part, four)
                    for total, (part,) in zip(totals[r], operands, strict=True)
                ]
        return totals

    def count(self, tally: Tally, codes: Chunks) -> None:
        """Sums of narrow codes fit a byte: added first, they are sooner there."""
        if self.fits_byte:
            tally[:] = self.add(tally, codes) if tally else codes
        else:
            tally[:] = self._counted(self.begun(tally), codes)

    def total(self, tally: Tally) -> ir.Value:
        if tally[0].type == self.byte:
            tally = self._counted(self.begun(None), tally)
        return self.joined(tally)

    def _counted(self, sums: Chunks, codes: Chunks) -> Chunks:
        ones = constant_splat(1, self.byte)
        return [
            vpdpbusd(self.builder, self.width, so_far, part, ones)
            for so_far, part in zip(sums, codes, strict=True)
        ]


class AvxVnni(Avx512Vnni):
    """vpdpbusd on 256 bits."""

    name = "avx_vnni"
    lanes = 8
    byte = HALF_I8
    width = 256
    abreast = 1

    def codes(self, planes: Planes, step: int) -> Chunks:
        return halves(self.builder, super().codes(planes, step)[0])

    def joined(self, chunks: Chunks) -> ir.Value:
        both = ir.Constant(V_I32, list(range(16)))
        return self.builder.shuffle_vector(chunks[0], chunks[1], both)


class Avx2(AvxVnni):
    """vpmaddubsw, whose sums of 16 bits are widened by vpmaddwd."""

    name = "avx2"

    def __init__(self, builder: Builder, fmt: Format, tiles: int = 1) -> None:
        super().__init__(builder, fmt, tiles)
        # codes of 8 bits do not fit: |code - 128| times the activation with the sign of code - 128
        self.signed = bool(fmt.table) or fmt.bits == 8
        if self.split:
            self.at_once = 2

    def products(
        self, source: Source, rows: Values, steps: range, sums: list[Chunks | None]
    ) -> list[Chunks]:
        fitting = 1 if self.signed else 32767 // (most_code(self.fmt) * 2 * MOST_INPUT)
        for first in range(steps.start, steps.stop, fitting):
            some = range(first, min(first + fitting, steps.stop))
            wide = [self._widened(narrow) for narrow in self._narrow(source, rows, some)]
            wide = [
                self.add(before, more) if before else more
                for before, more in zip(sums, wide, strict=True)
            ]
            sums = [*self._pinned(wide)]
        return [total for total in sums if total is not None]

    def _pinned(self, sums: list[Chunks]) -> list[Chunks]:
        flat = pinned(self.builder, [part for pair in sums for part in pair])
        return [flat[i : i + 2] for i in range(0, len(flat), 2)]

    def _narrow(self, source: Source, rows: Values, steps: range) -> list[Chunks]:
        """Sums of products in 16 bits, neighbours paired, per row."""
        sums: list[Chunks] = []
        for step in steps:
            operands = source(step)
            products = []
            for row in rows:
                four = self.word(plus(self.builder, row, 4 * step), HALF_I8)
                products.append([self._pairs(four, *operand) for operand in operands])
            if sums:
                products = [self.add(a, b) for a, b in zip(sums, products, strict=True)]
            sums = self._pinned(products)
        return sums

    def operands(self, codes: Chunks) -> list[Operand]:
        """Unsigned codes; or sizes, and what gives the activation their sign."""
        if not self.signed:
            return super().operands(codes)
        signs = [self.builder.xor(part, constant_splat(-128, HALF_I8)) for part in codes]
        no = ir.IntType(1)(0)
        return [(call(self.builder, "llvm.abs.v32i8", HALF_I8, sign, no), sign) for sign in signs]

    def loaded(self, places: Values) -> list[Operand]:
        parts = [part for (part,) in super().loaded(places)]
        return (
            list(zip(parts[::2], parts[1::2], strict=True))
            if self.signed
            else [(part,) for part in parts]
        )

    def _pairs(self, four: ir.Value, sizes: ir.Value, sign: ir.Value | None = None) -> ir.Value:
        if sign is not None:
            four = call(self.builder, "llvm.x86.avx2.psign.b", HALF_I8, four, sign)
        return call(self.builder, "llvm.x86.avx2.pmadd.ub.sw", HALF_I16, sizes, four)

    def count(self, tally: Tally, codes: Chunks) -> None:
        """Wider codes are paired first."""
        if not self.fits_byte:
            codes = [self._pairs(constant_splat(1, HALF_I8), part) for part in codes]
        tally[:] = self.add(tally, codes) if tally else codes

    def total(self, tally: Tally) -> ir.Value:
        if self.fits_byte:
            tally = [self._pairs(constant_splat(1, HALF_I8), part) for part in tally]
        return self.joined(self._widened(tally))

    def _widened(self, narrow: Chunks) -> Chunks:
        ones = constant_splat(1, HALF_I16)
        return [
            call(self.builder, "llvm.x86.avx2.pmadd.wd", HALF_I32, part, ones) for part in narrow
        ]


def vpdpbusd(
    builder: Builder, width: int, total: ir.Value, left: ir.Value, right: ir.Value
) -> ir.Value:
    """total + sums of four products of bytes, unsigned times signed; LLVM before 22 types these as
    32-bit lanes."""
    import llvmlite.binding as llvm

    words = ir.VectorType(I32, width // 32)
    if llvm.llvm_version_info[0] < 22:
        left, right = builder.bitcast(left, words), builder.bitcast(right, words)
    return call(builder, f"llvm.x86.avx512.vpdpbusd.{width}", words, total, left, right)


MACHINES = {machine.name: machine for machine in (Generic, Avx512Vnni, AvxVnni, Avx2)}
