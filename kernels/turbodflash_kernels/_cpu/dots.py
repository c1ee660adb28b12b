"""Exact integer sums over one block of 32 inputs, by instruction set.

Activations are x = unit * (factor * code + middle): int8 codes, a factor (1..127) and a middle (16
bits) per half block, one float unit per block. So the sum over a block of weight code * x is
unit * (factor_0 * P_0 + factor_1 * P_1 + middle_0 * C_0 + middle_1 * C_1), P and C being sums of
products and of weight codes: four integers, joined before anything is rounded.
"""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from turbodflash_kernels._cpu import layout
from turbodflash_kernels._cpu.codes import HALF_I8, V_I8, halves, step_codes, zero_of
from turbodflash_kernels._cpu.emit import Builder, Values, pinned, plus
from turbodflash_kernels._cpu.simd import I8, I16, I32, V_I32, call, constant_splat, load, splat
from turbodflash_kernels.planar import Format

HALF_I16, HALF_I32 = ir.VectorType(I16, 16), ir.VectorType(I32, 8)
V_I16 = ir.VectorType(I16, 32)
HALVES = (range(0, 4), range(4, 8))  # the steps of a block's halves
INPUTS = 16  # in a half

# int32 (or float32) words about a row's block of 32 activations, in the order in which they lie
INFO_BYTES = 4 * layout.INFO_WORDS
UNIT, SUM, FACTORS, MIDDLES, ZEROS, ALL_ZEROS = 0, 4, (8, 12), 16, (20, 24), 28


@dataclass(slots=True)
class Row:
    """Addresses of a row's block: its 32 codes, and its info."""

    codes: ir.Value
    info: ir.Value


def block_sums(
    builder: Builder,
    fmt: Format,
    isa: str,
    planes: ir.Value,
    rows: list[Row],
    code_sums: ir.Value | None,
) -> tuple[list[Values], ir.Value]:
    """Sums of (code - zero) * x / unit, [rows][1 or 2] <16 x i32>: of a block, or of its halves if
    each has its own scale; and the block's packed code sums, <16 x i32>: C_0 in the low 16 bits,
    C_1 in the high ones, each of code - zero. code_sums: these, if they are known already.
    """
    machine = MACHINES[isa](builder, fmt)
    split = fmt.block == INPUTS
    tallies = [machine.tally() for _ in HALVES]
    sums: list[list[Chunks]] = [[] for _ in rows]
    for half, steps in enumerate(HALVES):
        tally = tallies[half] if code_sums is None else None
        products = machine.products(planes, rows, steps, half, tally)
        for parts, product in zip(sums, products, strict=True):
            if parts and not split:
                parts[0] = machine.add(parts[0], product)
            else:
                parts.append(product)
    if code_sums is None:
        code_sums = _packed(builder, fmt, [machine.total(tally) for tally in tallies])
    finished = [
        machine.finished(row, parts, code_sums, split)
        for row, parts in zip(rows, sums, strict=True)
    ]
    return finished, code_sums


def _packed(builder: Builder, fmt: Format, totals: Values) -> ir.Value:
    if zero_of(fmt):
        zeros = constant_splat(zero_of(fmt) * INPUTS, V_I32)
        totals = [builder.sub(total, zeros) for total in totals]
    low = builder.and_(totals[0], constant_splat(0xFFFF, V_I32))
    return builder.or_(low, builder.shl(totals[1], constant_splat(16, V_I32)))


Chunks = list[ir.Value]
"""Sixteen lanes of i32 in the pieces in which a machine holds them."""

Tally = list[ir.Value]
"""A sum of codes under way, in whatever form suits a machine; empty at first."""


class Generic:
    """Multiplications of 32 bits, for any machine. The others replace what they do better."""

    name = "generic"
    signed = False  # whether products are of code - zero already
    lanes = 16

    def __init__(self, builder: Builder, fmt: Format) -> None:
        self.builder, self.fmt = builder, fmt

    def codes(self, planes: ir.Value, step: int) -> Chunks:
        return [step_codes(self.builder, self.fmt, self.name, planes, step)]

    def finished(
        self, row: Row, parts: list[Chunks], code_sums: ir.Value, split: bool
    ) -> list[ir.Value]:
        """Products of a row's block, or of its halves, with what the middles add and zeros take."""
        middles = self.middles(row, code_sums, split)
        sums = [
            self.joined(self.add(part, middle)) for part, middle in zip(parts, middles, strict=True)
        ]
        if not zero_of(self.fmt) or self.signed:
            return sums
        words = ZEROS if split else (ALL_ZEROS,)
        return [self._without_zeros(row, total, at) for total, at in zip(sums, words, strict=True)]

    def _without_zeros(self, row: Row, total: ir.Value, at: int) -> ir.Value:
        codes = splat(self.builder, load(self.builder, plus(self.builder, row.info, at), I32))
        zeros = self.builder.mul(codes, constant_splat(zero_of(self.fmt), V_I32))
        return self.builder.sub(total, zeros)

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

    def middles(self, row: Row, code_sums: ir.Value, split: bool) -> list[Chunks]:
        """middle * C of both halves, or of each."""
        builder = self.builder
        sixteen = constant_splat(16, V_I32)
        middles = self.word(plus(builder, row.info, MIDDLES), V_I32)
        high = builder.mul(builder.ashr(code_sums, sixteen), builder.ashr(middles, sixteen))
        low = builder.mul(
            builder.ashr(builder.shl(code_sums, sixteen), sixteen),
            builder.ashr(builder.shl(middles, sixteen), sixteen),
        )
        return [[low], [high]] if split else [[builder.add(low, high)]]

    def products(
        self, planes: ir.Value, rows: list[Row], steps: range, half: int, tally: Tally | None
    ) -> list[Chunks]:
        """factor * P of one half, per row; the codes are counted if there is a tally."""
        sums: Values = [ir.Constant(V_I32, None)] * len(rows)
        for step in steps:
            codes = self.codes(planes, step)
            if tally is not None:
                self.count(tally, codes)
            for j, column in enumerate(self._columns(codes)):
                for r, row in enumerate(rows):
                    at = plus(self.builder, row.codes, 4 * step + j)
                    code = splat(self.builder, self.builder.sext(load(self.builder, at, I8), I32))
                    sums[r] = self.builder.add(sums[r], self.builder.mul(column, code))
        return [
            self.times_factor([total], row, half) for total, row in zip(sums, rows, strict=True)
        ]

    def times_factor(self, chunks: Chunks, row: Row, half: int) -> Chunks:
        kind = chunks[0].type
        pair = self.word(plus(self.builder, row.info, FACTORS[half]), kind)
        factor = self.builder.and_(pair, constant_splat(0xFFFF, kind))
        return [self.builder.mul(chunk, factor) for chunk in chunks]

    def _columns(self, codes: Chunks) -> Values:
        """The codes of each of a step's four inputs, <16 x i32>."""
        words = self.builder.bitcast(codes[0], V_I32)
        low_byte = constant_splat(255, V_I32)
        return [
            self.builder.and_(self.builder.lshr(words, constant_splat(8 * j, V_I32)), low_byte)
            for j in range(4)
        ]


class Avx512Vnni(Generic):
    """vpdpbusd on 512 bits."""

    name = "avx512_vnni"
    byte, pair, word32 = V_I8, V_I16, V_I32
    width = 512
    madd = "llvm.x86.avx512.pmaddw.d.512"

    def middles(self, row: Row, code_sums: ir.Value, split: bool) -> list[Chunks]:
        middles = self.word(plus(self.builder, row.info, MIDDLES), self.word32)
        if not split:
            return [self._paired(code_sums, middles)]
        masks = (0xFFFF, -0x10000)
        return [
            self._paired(code_sums, self.builder.and_(middles, constant_splat(mask, self.word32)))
            for mask in masks
        ]

    def _paired(self, code_sums: ir.Value, middles: ir.Value) -> Chunks:
        """low * low + high * high of 16-bit pairs."""
        return [
            self._madd(self.builder.bitcast(chunk, self.pair), middles)
            for chunk in self.pieces(code_sums)
        ]

    def _madd(self, left: ir.Value, right: ir.Value) -> ir.Value:
        right = self.builder.bitcast(right, self.pair)
        return call(self.builder, self.madd, self.word32, left, right)

    def pieces(self, lanes: ir.Value) -> Chunks:
        return [lanes]

    def products(
        self, planes: ir.Value, rows: list[Row], steps: range, half: int, tally: Tally | None
    ) -> list[Chunks]:
        sums = [self._none() for _ in rows]
        for step in steps:
            codes = self.codes(planes, step)
            if tally is not None:
                self.count(tally, codes)
            for r, row in enumerate(rows):
                four = self.word(plus(self.builder, row.codes, 4 * step), self.byte)
                sums[r] = [
                    vnni(self.builder, self.width, total, part, four)
                    for total, part in zip(sums[r], codes, strict=True)
                ]
        return [self.times_factor(total, row, half) for total, row in zip(sums, rows, strict=True)]

    def count(self, tally: Tally, codes: Chunks) -> None:
        ones = constant_splat(1, self.byte)
        tally[:] = [
            vnni(self.builder, self.width, so_far, part, ones)
            for so_far, part in zip(tally or self._none(), codes, strict=True)
        ]

    def total(self, tally: Tally) -> ir.Value:
        return self.joined(tally)

    def _none(self) -> Chunks:
        return [ir.Constant(self.word32, None)] * (16 // self.lanes)


class AvxVnni(Avx512Vnni):
    """vpdpbusd on 256 bits."""

    name = "avx_vnni"
    lanes = 8
    byte, pair, word32 = HALF_I8, HALF_I16, HALF_I32
    width = 256
    madd = "llvm.x86.avx2.pmadd.wd"

    def codes(self, planes: ir.Value, step: int) -> Chunks:
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

    def __init__(self, builder: Builder, fmt: Format) -> None:
        super().__init__(builder, fmt)
        # codes of 8 bits do not fit: |code - 128| times the activation with the sign of code - 128
        self.signed = bool(fmt.table) or fmt.bits == 8

    def products(
        self, planes: ir.Value, rows: list[Row], steps: range, half: int, tally: Tally | None
    ) -> list[Chunks]:
        fitting = 1 if self.signed else 32767 // (((1 << self.fmt.bits) - 1) * 254)
        sums: list[Chunks] = []
        for first in range(steps.start, steps.stop, fitting):
            some = range(first, min(first + fitting, steps.stop))
            wide = []
            for row, narrow in zip(rows, self._narrow(planes, rows, some, tally), strict=True):
                factor = self.word(plus(self.builder, row.info, FACTORS[half]), HALF_I16)
                wide.append([self._madd(part, factor) for part in narrow])
            if sums:
                wide = [self.add(a, b) for a, b in zip(sums, wide, strict=True)]
            sums = self._pinned(wide)
        return sums

    def _pinned(self, sums: list[Chunks]) -> list[Chunks]:
        flat = pinned(self.builder, [part for pair in sums for part in pair])
        return [flat[i : i + 2] for i in range(0, len(flat), 2)]

    def _narrow(
        self, planes: ir.Value, rows: list[Row], steps: range, tally: Tally | None
    ) -> list[Chunks]:
        """Sums of products in 16 bits, neighbours paired, per row."""
        sums: list[Chunks] = []
        for step in steps:
            codes = self.codes(planes, step)
            if tally is not None:
                self.count(tally, codes)
            operands = [self._operands(part) for part in codes]
            products = []
            for row in rows:
                four = self.word(plus(self.builder, row.codes, 4 * step), HALF_I8)
                products.append([self._pairs(size, sign, four) for size, sign in operands])
            if sums:
                products = [self.add(a, b) for a, b in zip(sums, products, strict=True)]
            sums = self._pinned(products)
        return sums

    def _operands(self, codes: ir.Value) -> tuple[ir.Value, ir.Value | None]:
        """Unsigned sizes, and what gives the activation its sign."""
        if not self.signed:
            return codes, None
        signed = self.builder.xor(codes, constant_splat(-128, HALF_I8))
        return call(self.builder, "llvm.abs.v32i8", HALF_I8, signed, ir.IntType(1)(0)), signed

    def _pairs(self, sizes: ir.Value, sign: ir.Value | None, four: ir.Value) -> ir.Value:
        if sign is not None:
            four = call(self.builder, "llvm.x86.avx2.psign.b", HALF_I8, four, sign)
        return call(self.builder, "llvm.x86.avx2.pmadd.ub.sw", HALF_I16, sizes, four)

    def count(self, tally: Tally, codes: Chunks) -> None:
        """Four codes of up to 6 bits fit a byte; wider ones are paired first."""
        if self.signed:
            codes = [self._pairs(part, None, constant_splat(1, HALF_I8)) for part in codes]
        tally[:] = self.add(tally, codes) if tally else codes

    def total(self, tally: Tally) -> ir.Value:
        if not self.signed:
            tally = [self._pairs(part, None, constant_splat(1, HALF_I8)) for part in tally]
        return self.joined([self._madd(part, constant_splat(1, HALF_I16)) for part in tally])


def vnni(
    builder: Builder, width: int, total: ir.Value, codes: ir.Value, inputs: ir.Value
) -> ir.Value:
    """vpdpbusd; LLVM before 22 types its operands as 32-bit lanes."""
    import llvmlite.binding as llvm

    words = ir.VectorType(I32, width // 32)
    if llvm.llvm_version_info[0] < 22:
        codes, inputs = builder.bitcast(codes, words), builder.bitcast(inputs, words)
    return call(builder, f"llvm.x86.avx512.vpdpbusd.{width}", words, total, codes, inputs)


MACHINES = {machine.name: machine for machine in (Generic, Avx512Vnni, AvxVnni, Avx2)}
