"""Exact integer sums over one block of 32 inputs, by instruction set.

Activations are x = unit * (factor * code + middle): int8 codes, a factor (1..127) and a middle (16
bits) per half block, one float unit per block. So the sum over a block of weight code * x is
unit * (factor_0 * P_0 + factor_1 * P_1 + middle_0 * C_0 + middle_1 * C_1), P and C being sums of
products and of weight codes: four integers, joined before anything is rounded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from llvmlite import ir

from turbodflash_kernels._cpu import layout
from turbodflash_kernels._cpu.codes import HALF_I8, V_I8, halves, step_codes, zero_of
from turbodflash_kernels._cpu.emit import Builder, Values, pinned, plus
from turbodflash_kernels._cpu.simd import (
    I8,
    I16,
    I32,
    V_I32,
    call,
    constant_splat,
    load,
    splat,
    store,
)
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
    builder: Builder, fmt: Format, isa: str, planes: ir.Value, rows: list[Row]
) -> list[Values]:
    """Sums of (code - zero) * x / unit, [rows][1 or 2] <16 x i32>: of a block, or of its halves if
    each has its own scale. The codes are decoded on the way.
    """
    machine = MACHINES[isa](builder, fmt)
    tallies = [machine.tally() for _ in HALVES]
    sums: list[list[Chunks]] = [[] for _ in rows]
    for half, steps in enumerate(HALVES):

        def counted(step: int, half: int = half) -> list[Operand]:
            codes = machine.codes(planes, step)
            machine.count(tallies[half], codes)
            return machine.operands(codes)

        for parts, product in zip(
            sums, machine.products(counted, rows, steps, half, None), strict=True
        ):
            if parts and not machine.split:
                parts[0] = machine.add(parts[0], product)
            else:
                parts.append(product)
    code_sums = _packed(builder, fmt, [machine.total(tally) for tally in tallies])
    return [
        machine.finished(
            row,
            [
                machine.add(part, machine.middles(row, code_sums, half))
                for half, part in enumerate(parts)
            ],
        )
        for row, parts in zip(rows, sums, strict=True)
    ]


def decode_block(
    builder: Builder, fmt: Format, isa: str, planes: ir.Value, to: ir.Value
) -> ir.Value:
    """Leave the operands of all steps at `to`, for `decoded_sums`. Returns the packed code sums,
    <16 x i32>: C_0 in the low 16 bits, C_1 in the high ones, each of code - zero.
    """
    machine = MACHINES[isa](builder, fmt)
    totals = []
    for steps in HALVES:
        tally = machine.tally()
        for step in steps:
            codes = machine.codes(planes, step)
            machine.count(tally, codes)
            for at, value in zip(
                machine.places(to, step), flat(machine.operands(codes)), strict=True
            ):
                store(builder, value, at)
        totals.append(machine.total(tally))
    return _packed(builder, fmt, totals)


def decoded_sums(
    builder: Builder, fmt: Format, isa: str, decoded: ir.Value, rows: list[Row], code_sums: ir.Value
) -> list[Values]:
    """What `block_sums` gives, from what `decode_block` left. The middles come first: then a sum
    has one register from its beginning to its end.
    """
    machine = MACHINES[isa](builder, fmt)

    def source(step: int) -> list[Operand]:
        return machine.loaded(machine.places(decoded, step))

    sums: list[list[Chunks]] = [[] for _ in rows]
    for half, steps in enumerate(HALVES):
        if machine.split or not half:
            before = [machine.middles(row, code_sums, half) for row in rows]
        else:
            before = [parts.pop() for parts in sums]
        after = machine.products(source, rows, steps, half, before)
        for parts, product in zip(sums, after, strict=True):
            parts.append(product)
    return [machine.finished(row, parts) for row, parts in zip(rows, sums, strict=True)]


def flat(operands: list[Operand]) -> Values:
    return [value for operand in operands for value in operand]


def _packed(builder: Builder, fmt: Format, totals: Values) -> ir.Value:
    if zero_of(fmt):
        zeros = constant_splat(zero_of(fmt) * INPUTS, V_I32)
        totals = [builder.sub(total, zeros) for total in totals]
    low = builder.and_(totals[0], constant_splat(0xFFFF, V_I32))
    return builder.or_(low, builder.shl(totals[1], constant_splat(16, V_I32)))


Chunks = list[ir.Value]
"""Sixteen lanes of i32 in the pieces in which a machine holds them."""

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

    def __init__(self, builder: Builder, fmt: Format) -> None:
        self.builder, self.fmt = builder, fmt
        self.split = fmt.block == INPUTS

    def codes(self, planes: ir.Value, step: int) -> Chunks:
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

    def finished(self, row: Row, parts: list[Chunks]) -> list[ir.Value]:
        """Sums of a row's block, or of its halves, with what zeros take."""
        sums = [self.joined(part) for part in parts]
        if not zero_of(self.fmt) or self.signed:
            return sums
        words = ZEROS if self.split else (ALL_ZEROS,)
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

    def middles(self, row: Row, code_sums: ir.Value, half: int) -> Chunks:
        """middle * C of both halves, or of one if each has its own scale."""
        builder, sixteen = self.builder, constant_splat(16, V_I32)
        middles = self.word(plus(builder, row.info, MIDDLES), V_I32)
        pair = (code_sums, middles)
        high = builder.mul(*(builder.ashr(value, sixteen) for value in pair))
        if self.split and half:
            return [high]
        low = builder.mul(*(builder.ashr(builder.shl(value, sixteen), sixteen) for value in pair))
        return [low] if self.split else [builder.add(low, high)]

    def products(
        self, source: Source, rows: list[Row], steps: range, half: int, sums: list[Chunks] | None
    ) -> list[Chunks]:
        """sums + factor * P of one half, per row."""
        totals: Values = [ir.Constant(V_I32, None)] * len(rows)
        for step in steps:
            for j, column in enumerate(self._columns([codes for (codes,) in source(step)])):
                for r, row in enumerate(rows):
                    at = plus(self.builder, row.codes, 4 * step + j)
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

    def middles(self, row: Row, code_sums: ir.Value, half: int) -> Chunks:
        middles = self.word(plus(self.builder, row.info, MIDDLES), self.word32)
        if self.split:
            mask = constant_splat(-0x10000 if half else 0xFFFF, self.word32)
            middles = self.builder.and_(middles, mask)
        return self._paired(code_sums, middles)

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
        self, source: Source, rows: list[Row], steps: range, half: int, sums: list[Chunks] | None
    ) -> list[Chunks]:
        totals = [self._none() for _ in rows]
        for step in steps:
            operands = source(step)
            for r, row in enumerate(rows):
                four = self.word(plus(self.builder, row.codes, 4 * step), self.byte)
                totals[r] = [
                    vnni(self.builder, self.width, total, part, four)
                    for total, (part,) in zip(totals[r], operands, strict=True)
                ]
        return self.added(
            sums,
            [self.times_factor(total, row, half) for total, row in zip(totals, rows, strict=True)],
        )

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
        self, source: Source, rows: list[Row], steps: range, half: int, sums: list[Chunks] | None
    ) -> list[Chunks]:
        fitting = 1 if self.signed else 32767 // (((1 << self.fmt.bits) - 1) * 254)
        if sums is not None:
            sums = self._pinned(sums)
        for first in range(steps.start, steps.stop, fitting):
            some = range(first, min(first + fitting, steps.stop))
            wide = []
            for row, narrow in zip(rows, self._narrow(source, rows, some), strict=True):
                factor = self.word(plus(self.builder, row.info, FACTORS[half]), HALF_I16)
                wide.append([self._madd(part, factor) for part in narrow])
            sums = self._pinned(self.added(sums, wide))
        assert sums is not None
        return sums

    def _pinned(self, sums: list[Chunks]) -> list[Chunks]:
        flat = pinned(self.builder, [part for pair in sums for part in pair])
        return [flat[i : i + 2] for i in range(0, len(flat), 2)]

    def _narrow(self, source: Source, rows: list[Row], steps: range) -> list[Chunks]:
        """Sums of products in 16 bits, neighbours paired, per row."""
        sums: list[Chunks] = []
        for step in steps:
            operands = source(step)
            products = []
            for row in rows:
                four = self.word(plus(self.builder, row.codes, 4 * step), HALF_I8)
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
    builder: Builder, width: int, total: ir.Value, codes: ir.Value, inputs: ir.Value
) -> ir.Value:
    """vpdpbusd; LLVM before 22 types its operands as 32-bit lanes."""
    import llvmlite.binding as llvm

    words = ir.VectorType(I32, width // 32)
    if llvm.llvm_version_info[0] < 22:
        codes, inputs = builder.bitcast(codes, words), builder.bitcast(inputs, words)
    return call(builder, f"llvm.x86.avx512.vpdpbusd.{width}", words, total, codes, inputs)


MACHINES = {machine.name: machine for machine in (Generic, Avx512Vnni, AvxVnni, Avx2)}
