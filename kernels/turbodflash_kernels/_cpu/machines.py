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
from turbodflash_kernels._cpu.rows import FACTORS, HALVES, MIDDLES, MOST_INPUT
from turbodflash_kernels.planar import Format

HALF_I16, HALF_I32 = ir.VectorType(I16, 16), ir.VectorType(I32, 8)
V_I16 = ir.VectorType(I16, 32)


class Avx512Vnni(Generic):
    """vpdpbusd on 512 bits."""

    name = "avx512_vnni"
    byte, pair, word32 = V_I8, V_I16, V_I32
    width = 512
    abreast = 2
    madd = "llvm.x86.avx512.pmaddw.d.512"

    def middles(self, row: ir.Value, code_sums: ir.Value, half: int) -> Chunks:
        middles = self.word(plus(self.builder, row, MIDDLES), self.word32)
        if self.split:
            mask = constant_splat(-0x10000 if half else 0xFFFF, self.word32)
            middles = self.builder.and_(middles, mask)
        return self._paired(code_sums, middles)

    def _paired(self, code_sums: ir.Value, middles: ir.Value) -> Chunks:
        """low * low + high * high of 16-bit pairs."""
        return [self._madd(pair, middles) for pair in self._as_pairs(self.pieces(code_sums))]

    def _madd(self, left: ir.Value, right: ir.Value) -> ir.Value:
        right = self.builder.bitcast(right, self.pair)
        return call(self.builder, self.madd, self.word32, left, right)

    def pieces(self, lanes: ir.Value) -> Chunks:
        return [lanes]

    def products(
        self, source: Source, rows: Values, steps: range, half: int, sums: list[Chunks] | None
    ) -> list[Chunks]:
        fitting = 32767 // (most_code(self.fmt) * 4 * MOST_INPUT)  # steps
        add = self._add_narrow if fitting > 1 else self._add_wide
        at_once = fitting if fitting > 1 else len(steps)
        sums = sums or [self._none() for _ in rows]
        for first in range(steps.start, steps.stop, at_once):
            some = range(first, min(first + at_once, steps.stop))
            totals = self._totals(source, rows, some)
            sums = [add(*each, half) for each in zip(sums, totals, rows, strict=True)]
        return sums

    def _add_narrow(self, sums: Chunks, totals: Chunks, row: ir.Value, half: int) -> Chunks:
        """sums + factor * totals of 16 bits, which is one instruction instead of three."""
        factor = self.word(plus(self.builder, row, FACTORS[half]), self.pair)
        return [
            vnni(self.builder, "wssd", self.width, so_far, total, factor)
            for so_far, total in zip(sums, self._as_pairs(totals), strict=True)
        ]

    def _add_wide(self, sums: Chunks, totals: Chunks, row: ir.Value, half: int) -> Chunks:
        return self.add(sums, self.times_factor(totals, row, half))

    def _as_pairs(self, chunks: Chunks) -> Chunks:
        return [self.builder.bitcast(chunk, self.pair) for chunk in chunks]

    def _totals(self, source: Source, rows: Values, steps: range) -> list[Chunks]:
        """Sums of products, per row."""
        totals = [self._none() for _ in rows]
        for step in steps:
            operands = source(step)
            for r, row in enumerate(rows):
                four = self.word(plus(self.builder, row, 4 * step), self.byte)
                totals[r] = [
                    vnni(self.builder, "busd", self.width, total, part, four)
                    for total, (part,) in zip(totals[r], operands, strict=True)
                ]
        return totals

    def count(self, tally: Tally, codes: Chunks) -> None:
        """Four codes of up to 6 bits fit a byte: added first, they are sooner there."""
        if most_code(self.fmt) * len(HALVES[0]) < 256:
            tally[:] = self.add(tally, codes) if tally else codes
        else:
            tally[:] = self._counted(tally or self._none(), codes)

    def total(self, tally: Tally) -> ir.Value:
        if tally[0].type == self.byte:
            tally = self._counted(self._none(), tally)
        return self.joined(tally)

    def _counted(self, sums: Chunks, codes: Chunks) -> Chunks:
        ones = constant_splat(1, self.byte)
        return [
            vnni(self.builder, "busd", self.width, so_far, part, ones)
            for so_far, part in zip(sums, codes, strict=True)
        ]

    def _none(self) -> Chunks:
        return [ir.Constant(self.word32, None)] * (16 * self.tiles // self.lanes)


class AvxVnni(Avx512Vnni):
    """vpdpbusd on 256 bits."""

    name = "avx_vnni"
    lanes = 8
    byte, pair, word32 = HALF_I8, HALF_I16, HALF_I32
    width = 256
    abreast = 1
    madd = "llvm.x86.avx2.pmadd.wd"

    def codes(self, planes: Planes, step: int) -> Chunks:
        return halves(self.builder, super().codes(planes, step)[0])

    def joined(self, chunks: Chunks) -> ir.Value:
        both = ir.Constant(V_I32, list(range(16)))
        return self.builder.shuffle_vector(chunks[0], chunks[1], both)

    def pieces(self, lanes: ir.Value) -> Chunks:
        def take(first: int) -> ir.Value:
            which = ir.Constant(ir.VectorType(I32, 8), list(range(first, first + 8)))
            return self.builder.shuffle_vector(lanes, lanes, which)

        return [take(0), take(8)]


class Avx2(AvxVnni):
    """vpmaddubsw. Its 16-bit sums are widened by a multiplication with the factor: that is free."""

    name = "avx2"
    factors_twice = True

    def __init__(self, builder: Builder, fmt: Format, tiles: int = 1) -> None:
        super().__init__(builder, fmt, tiles)
        # codes of 8 bits do not fit: |code - 128| times the activation with the sign of code - 128
        self.signed = bool(fmt.table) or fmt.bits == 8
        if self.split:
            self.at_once = 2

    def products(
        self, source: Source, rows: Values, steps: range, half: int, sums: list[Chunks] | None
    ) -> list[Chunks]:
        fitting = 1 if self.signed else 32767 // (most_code(self.fmt) * 2 * MOST_INPUT)
        if sums is not None:
            sums = self._pinned(sums)
        for first in range(steps.start, steps.stop, fitting):
            some = range(first, min(first + fitting, steps.stop))
            wide = []
            for row, narrow in zip(rows, self._narrow(source, rows, some), strict=True):
                factor = self.word(plus(self.builder, row, FACTORS[half]), HALF_I16)
                wide.append([self._madd(part, factor) for part in narrow])
            sums = self._pinned(self.added(sums, wide))
        assert sums is not None
        return sums

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
        """Four codes of up to 6 bits fit a byte; wider ones are paired first."""
        if self.signed:
            codes = [self._pairs(constant_splat(1, HALF_I8), part) for part in codes]
        tally[:] = self.add(tally, codes) if tally else codes

    def total(self, tally: Tally) -> ir.Value:
        if not self.signed:
            tally = [self._pairs(constant_splat(1, HALF_I8), part) for part in tally]
        return self.joined([self._madd(part, constant_splat(1, HALF_I16)) for part in tally])


def vnni(
    builder: Builder, kind: str, width: int, total: ir.Value, left: ir.Value, right: ir.Value
) -> ir.Value:
    """vpdpbusd or vpdpwssd; LLVM before 22 types their operands as 32-bit lanes."""
    import llvmlite.binding as llvm

    words = ir.VectorType(I32, width // 32)
    if llvm.llvm_version_info[0] < 22:
        left, right = builder.bitcast(left, words), builder.bitcast(right, words)
    return call(builder, f"llvm.x86.avx512.vpdp{kind}.{width}", words, total, left, right)


MACHINES = {machine.name: machine for machine in (Generic, Avx512Vnni, AvxVnni, Avx2)}
