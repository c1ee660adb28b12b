"""Exact integer sums over one block of 32 inputs (see rows.py), whatever the instruction set.

A part of a block is what has a scale of its own: all of it, or a half.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from turbodflash_kernels._cpu.codes import Planes
from turbodflash_kernels._cpu.emit import Builder, Values, store
from turbodflash_kernels._cpu.generic import Chunks, Generic, Operand, Source
from turbodflash_kernels._cpu.machines import MACHINES
from turbodflash_kernels.planar import Format


def block_sums(
    builder: Builder, fmt: Format, isa: str, planes: Planes, rows: Values
) -> tuple[list[Values], Values]:
    """Sums of (code - zero) * code of x, [rows][parts] <16 x i32>, and sums of codes, [parts]. The
    codes are decoded on the way.
    """
    machine = MACHINES[isa](builder, fmt)
    tallies = [machine.tally() for _ in machine.parts]

    def source(step: int) -> list[Operand]:
        codes = machine.codes(planes, step)
        part = next(i for i, steps in enumerate(machine.parts) if step in steps)
        machine.count(tallies[part], codes)
        return machine.operands(codes)

    sums = [of_tile for (of_tile,) in _sums(machine, source, rows)]
    return sums, [machine.total(tally) for tally in tallies]


def decode_block(builder: Builder, fmt: Format, isa: str, planes: Planes, to: ir.Value) -> Values:
    """Leave the operands of all steps at `to`, for `decoded_sums`. Returns the sums of codes."""
    machine = MACHINES[isa](builder, fmt)
    steps, code_sums = _decoded(machine, planes)
    for step, operands in enumerate(steps):
        values = [value for operand in operands for value in operand]
        for at, value in zip(machine.places(to, step), values, strict=True):
            store(builder, value, at)
    return code_sums


def decoded_sums(
    builder: Builder, fmt: Format, isa: str, decoded: ir.Value, rows: Values
) -> list[Values]:
    """What `block_sums` gives of rows, from what `decode_block` left."""
    machine = MACHINES[isa](builder, fmt)

    def source(step: int) -> list[Operand]:
        return machine.loaded(machine.places(decoded, step))

    return [
        of_tile
        for first in range(0, len(rows), machine.at_once)
        for (of_tile,) in _sums(machine, source, rows[first : first + machine.at_once])
    ]


class DecodedTiles:
    """A block of some tiles in registers: the operands of all steps.

    code_sums: [tiles][parts].
    """

    def __init__(self, builder: Builder, fmt: Format, isa: str, tiles: Sequence[Planes]) -> None:
        self._machine = MACHINES[isa](builder, fmt, len(tiles))
        single = MACHINES[isa](builder, fmt)
        steps, self.code_sums = zip(*(_decoded(single, planes) for planes in tiles), strict=True)
        self._steps = [
            [operand for of_tile in operands for operand in of_tile]
            for operands in zip(*steps, strict=True)
        ]

    def sums(self, rows: Values) -> list[list[Values]]:
        """What `block_sums` gives, of each row and tile."""
        return _sums(self._machine, self._steps.__getitem__, rows)


def _decoded(machine: Generic, planes: Planes) -> tuple[list[list[Operand]], Values]:
    """The operands of all steps, and the sums of codes."""
    operands, totals = [], []
    for steps in machine.parts:
        tally = machine.tally()
        for step in steps:
            codes = machine.codes(planes, step)
            machine.count(tally, codes)
            operands.append(machine.operands(codes))
        totals.append(machine.total(tally))
    return operands, totals


def _sums(machine: Generic, source: Source, rows: Values) -> list[list[Values]]:
    """Of each row and tile, [parts]."""
    sums: list[list[Chunks]] = [[] for _ in rows]
    for part, steps in enumerate(machine.parts):
        before = [machine.beside(row, part) for row in rows]
        after = machine.products(source, rows, steps, before)
        for parts, product in zip(sums, after, strict=True):
            parts.append(product)
    each = 16 // machine.lanes  # chunks of a tile
    return [
        [
            [machine.joined(part[first : first + each]) for part in parts]
            for first in range(0, each * machine.tiles, each)
        ]
        for parts in sums
    ]
