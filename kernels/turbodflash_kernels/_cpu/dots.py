"""Exact integer sums over one block of 32 inputs (see rows.py), whatever the instruction set."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from turbodflash_kernels._cpu.codes import Planes, zero_of
from turbodflash_kernels._cpu.emit import V_I32, Builder, Values, constant_splat, store
from turbodflash_kernels._cpu.generic import Chunks, Generic, Operand, Source
from turbodflash_kernels._cpu.machines import MACHINES
from turbodflash_kernels._cpu.rows import HALVES, INPUTS
from turbodflash_kernels.planar import Format


def block_sums(
    builder: Builder, fmt: Format, isa: str, planes: Planes, rows: Values
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
        [
            machine.joined(machine.add(part, machine.beside(row, code_sums, half)))
            for half, part in enumerate(parts)
        ]
        for row, parts in zip(rows, sums, strict=True)
    ]


def decode_block(builder: Builder, fmt: Format, isa: str, planes: Planes, to: ir.Value) -> ir.Value:
    """Leave the operands of all steps at `to`, for `decoded_sums`. Returns the packed code sums,
    <16 x i32>: C_0 in the low 16 bits, C_1 in the high ones, each of code - zero.
    """
    machine = MACHINES[isa](builder, fmt)
    steps, code_sums = _decoded(machine, planes)
    for step, operands in enumerate(steps):
        values = [value for operand in operands for value in operand]
        for at, value in zip(machine.places(to, step), values, strict=True):
            store(builder, value, at)
    return code_sums


def decoded_sums(
    builder: Builder, fmt: Format, isa: str, decoded: ir.Value, rows: Values, code_sums: ir.Value
) -> list[Values]:
    """What `block_sums` gives, from what `decode_block` left."""
    machine = MACHINES[isa](builder, fmt)

    def source(step: int) -> list[Operand]:
        return machine.loaded(machine.places(decoded, step))

    return [
        of_tile
        for first in range(0, len(rows), machine.at_once)
        for (of_tile,) in _sums(machine, source, rows[first : first + machine.at_once], [code_sums])
    ]


class DecodedTiles:
    """A block of some tiles in registers: the operands of all steps, and packed code sums."""

    def __init__(self, builder: Builder, fmt: Format, isa: str, tiles: Sequence[Planes]) -> None:
        self._machine = MACHINES[isa](builder, fmt, len(tiles))
        single = MACHINES[isa](builder, fmt)
        steps, self._code_sums = zip(*(_decoded(single, planes) for planes in tiles), strict=True)
        self._steps = [
            [operand for of_tile in operands for operand in of_tile]
            for operands in zip(*steps, strict=True)
        ]

    def sums(self, rows: Values) -> list[list[Values]]:
        """What `block_sums` gives, of each row and tile."""
        return _sums(self._machine, self._steps.__getitem__, rows, self._code_sums)


def _decoded(machine: Generic, planes: Planes) -> tuple[list[list[Operand]], ir.Value]:
    """The operands of all steps, and the packed code sums."""
    operands, totals = [], []
    for steps in HALVES:
        tally = machine.tally()
        for step in steps:
            codes = machine.codes(planes, step)
            machine.count(tally, codes)
            operands.append(machine.operands(codes))
        totals.append(machine.total(tally))
    return operands, _packed(machine.builder, machine.fmt, totals)


def _sums(
    machine: Generic, source: Source, rows: Values, code_sums: Sequence[ir.Value]
) -> list[list[Values]]:
    """Of each row and tile. What is beside the products comes first: then a sum has one register
    from its beginning to its end.
    """

    def beside(row: ir.Value, half: int) -> Chunks:
        return [part for known in code_sums for part in machine.beside(row, known, half)]

    def finished(parts: list[Chunks]) -> list[Values]:
        each = 16 // machine.lanes
        return [
            [machine.joined(part[first : first + each]) for part in parts]
            for first in range(0, each * machine.tiles, each)
        ]

    sums: list[list[Chunks]] = [[] for _ in rows]
    for half, steps in enumerate(HALVES):
        if machine.split or not half:
            before = [beside(row, half) for row in rows]
        else:
            before = [parts.pop() for parts in sums]
        after = machine.products(source, rows, steps, half, before)
        for parts, product in zip(sums, after, strict=True):
            parts.append(product)
    return [finished(parts) for parts in sums]


def _packed(builder: Builder, fmt: Format, totals: Values) -> ir.Value:
    if zero_of(fmt):
        zeros = constant_splat(zero_of(fmt) * INPUTS, V_I32)
        totals = [builder.sub(total, zeros) for total in totals]
    low = builder.and_(totals[0], constant_splat(0xFFFF, V_I32))
    return builder.or_(low, builder.shl(totals[1], constant_splat(16, V_I32)))
