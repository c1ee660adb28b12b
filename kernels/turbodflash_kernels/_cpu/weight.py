"""Packed matrices on a CPU, and how they come to be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turbodflash_kernels._cpu import layout
from turbodflash_kernels._cpu.library import Library, function_at
from turbodflash_kernels._cpu.memory import Memory
from turbodflash_kernels._cpu.packing import Packing
from turbodflash_kernels._cpu.team import address
from turbodflash_kernels.op import Part
from turbodflash_kernels.planar import Format, Planar

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
    packing: Packing,
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
        _hand_in(packed[-1], group, library, packing)
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


def _hand_in(target: PackedPart, parts: list[Part], library: Library, packing: Packing) -> None:
    step = max(CHUNK_BYTES // target.cols // layout.TILE, 1) * layout.TILE
    first = 0
    for part in parts:
        kernel = _unpacker(part, library)
        for start in range(0, part.rows, step):
            stop = min(start + step, part.rows)
            to = address(target.tiles) + (first + start) // layout.TILE * target.tile_bytes
            if kernel and part.stored:
                rows = part.stored.data[start:stop]
                words = (kernel, to, stop - start, target.cols, address(rows))
                packing.record(words, rows, partial(part.stored.taken, start, stop))
            else:
                packing.submit(_job(target, part, start, stop, to, _packer(part.format, library)))
        first += part.rows


def _unpacker(part: Part, library: Library) -> int:
    """The kernel that takes the bytes of the file as they are; 0 = there is none."""
    fmt = part.format
    if part.stored is None:
        return 0
    if fmt.dense:
        return library.address("_cpu.pack_kernels", "pack_dense", layout.DENSE_BYTES[fmt.dense])
    blocks = part.stored.blocks
    if blocks is None or tuple(plane.bits for plane in blocks.planes) != layout.PLANES[fmt.bits]:
        return 0
    return library.address("_cpu.unpack_kernels", "unpack", fmt, blocks)


def _job(
    target: PackedPart, part: Part, start: int, stop: int, to: int, packer: Callable[..., None]
) -> Callable[[], None]:
    def run() -> None:
        planar = part.decode(start, stop)
        arrays = [np.ascontiguousarray(a) for a in _arrays(planar)]
        words = [to, stop - start, target.cols, *map(address, arrays)]
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
    kernel = library.address("_cpu.pack_kernels", *spec)
    call = function_at(kernel, 3)

    def pack_with(words: NDArray[np.int64]) -> None:
        library.wait(kernel)
        call(address(words), 0, 0)

    return pack_with
