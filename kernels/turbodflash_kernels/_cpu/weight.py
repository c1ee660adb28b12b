"""Packed matrices on a CPU, and how they come to be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turbodflash_kernels._cpu import layout
from turbodflash_kernels._cpu.library import Library
from turbodflash_kernels._cpu.team import address, aligned
from turbodflash_kernels.op import Part
from turbodflash_kernels.planar import Format, Planar

CHUNK_BYTES = 1 << 18  # codes decoded at once: they should stay in the second-level cache


@dataclass(frozen=True, slots=True)
class PackedPart:
    """Rows of one format: tiles of sixteen, one after the other."""

    format: Format
    rows: int
    cols: int
    tiles: NDArray[np.uint8]

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


def pack(parts: Sequence[Part], cols: int, library: Library, threads: int) -> CpuWeight:
    """Decode and pack all rows, chunk by chunk, in parallel."""
    jobs: list[Callable[[], None]] = []
    packed = []
    for group in _runs(parts):
        fmt, rows = group[0].format, sum(part.rows for part in group)
        tiles = aligned(-(-rows // layout.TILE) * layout.tile_bytes(fmt, cols), np.uint8)
        packed.append(PackedPart(fmt, rows, cols, tiles))
        jobs += _jobs(packed[-1], group, _packer(fmt, library))
    if threads == 1:
        for job in jobs:
            job()
    else:
        with ThreadPoolExecutor(threads) as pool:
            for done in [pool.submit(job) for job in jobs]:
                done.result()
    return CpuWeight(tuple(packed), cols)


def _runs(parts: Sequence[Part]) -> list[list[Part]]:
    """Neighbours of one format whose rows fill whole tiles share a run of tiles."""
    runs: list[list[Part]] = []
    for part in parts:
        last = runs[-1] if runs else None
        if last and last[0].format == part.format and sum(p.rows for p in last) % layout.TILE == 0:
            last.append(part)
        else:
            runs.append([part])
    return runs


def _jobs(
    target: PackedPart, parts: list[Part], packer: Callable[..., None]
) -> list[Callable[[], None]]:
    step = max(CHUNK_BYTES // target.cols // layout.TILE, 1) * layout.TILE
    jobs: list[Callable[[], None]] = []
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
) -> Callable[[], None]:
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
