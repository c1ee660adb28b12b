"""Packed matrices on a CPU, and how they come to be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turbodflash_kernels._cpu import layout
from turbodflash_kernels._cpu.library import Library
from turbodflash_kernels._cpu.memory import Memory
from turbodflash_kernels._cpu.team import address
from turbodflash_kernels.op import Part
from turbodflash_kernels.planar import Format, Planar

Job = Callable[[], None]

CHUNK_BYTES = 1 << 20  # codes decoded at once: fewer, and two threads wait for the interpreter


@dataclass(frozen=True, slots=True)
class PackedPart:
    """Rows of one format: tiles of sixteen, one after the other. factor: as in `Part`."""

    format: Format
    rows: int
    cols: int
    tiles: NDArray[np.uint8]
    factor: float

    @property
    def count(self) -> int:
        """Tiles; the last may have rows that are not there."""
        return -(-self.rows // layout.TILE)

    @property
    def tile_bytes(self) -> int:
        return layout.tile_bytes(self.format, self.cols)


@dataclass(frozen=True, slots=True)
class CpuWeight:
    """A matrix [rows, cols] as parts, one below the other."""

    parts: tuple[PackedPart, ...]
    cols: int

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    @property
    def nbytes(self) -> int:
        return sum(part.tiles.nbytes for part in self.parts)


def pack(
    parts: Sequence[Part],
    cols: int,
    library: Library,
    memory: Memory,
    submit: Callable[[Job], object],
) -> CpuWeight:
    """Hand in jobs that decode and pack all rows, chunk by chunk, in any order, side by side.

    The weight is there at once; its contents are when all jobs are done.
    """
    packed = []
    for group in _runs(parts):
        fmt, rows = group[0].format, sum(part.rows for part in group)
        size = -(-rows // layout.TILE) * layout.tile_bytes(fmt, cols)
        tiles = memory.take((size,), np.uint8)
        packed.append(PackedPart(fmt, rows, cols, tiles, group[0].factor))
        for job in _jobs(packed[-1], group, _packer(fmt, library)):
            submit(job)
    return CpuWeight(tuple(packed), cols)


def _runs(parts: Sequence[Part]) -> list[list[Part]]:
    """Neighbours of one format and factor whose rows fill whole tiles share a run of tiles."""
    runs: list[list[Part]] = []
    for part in parts:
        last = runs[-1] if runs else None
        alike = last and (last[0].format, last[0].factor) == (part.format, part.factor)
        if last and alike and sum(each.rows for each in last) % layout.TILE == 0:
            last.append(part)
        else:
            runs.append([part])
    return runs


def _jobs(target: PackedPart, parts: list[Part], packer: Callable[..., None]) -> list[Job]:
    step = max(CHUNK_BYTES // target.cols // layout.TILE, 1) * layout.TILE
    jobs: list[Job] = []
    first = 0
    for part in parts:
        for start in range(0, part.rows, step):
            stop = min(start + step, part.rows)
            at = (first + start) // layout.TILE * target.tile_bytes
            jobs.append(_job(target, part, start, stop, at, packer))
        first += part.rows
    return jobs


def _job(
    target: PackedPart, part: Part, start: int, stop: int, at: int, packer: Callable[..., None]
) -> Job:
    def run() -> None:
        planar = part.decode(start, stop)
        arrays = [np.ascontiguousarray(a) for a in _arrays(planar)]
        words = [address(target.tiles) + at, stop - start, target.cols, *map(address, arrays)]
        packer(np.array(words, np.int64))

    return run


def _arrays(planar: Planar) -> list[NDArray[Any]]:
    """In the order in which the packing kernels take them; those that are absent are empty."""
    if planar.format.dense:
        return [planar.codes]
    factors = (planar.scale, planar.min, planar.super_scale, planar.super_min)
    return [planar.codes, *(np.empty(0) if f is None else f for f in factors)]


def _packer(fmt: Format, library: Library) -> Callable[[NDArray[np.int64]], None]:
    if fmt.dense:
        spec: tuple[Any, ...] = ("pack_dense", layout.DENSE_BYTES[fmt.dense])
    else:
        spec = ("pack_quantised", fmt)
    kernel = library.function(3, "_cpu.pack_kernels", *spec)
    return lambda words: kernel(address(words), 0, 0)
