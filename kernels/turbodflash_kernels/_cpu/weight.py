"""Packed matrices on a CPU, and how they come to be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turbodflash_kernels._cpu import layout, streams
from turbodflash_kernels._cpu.library import Library, function_at
from turbodflash_kernels._cpu.memory import Memory
from turbodflash_kernels._cpu.packing import Packing
from turbodflash_kernels._cpu.team import address
from turbodflash_kernels.op import Part
from turbodflash_kernels.planar import Format, Planar

CHUNK_BYTES = 1 << 20  # codes decoded at once: fewer, and two threads wait for the interpreter


@dataclass(frozen=True, slots=True)
class Lower:
    """What a part that is kept in two streams has beside its tiles (see streams.py).

    tiles: of the lowest bits. reaches: f32 of each row of the tiles, those that are not there
    included (see stream_kernels.py); the device finds them.
    """

    tiles: NDArray[np.uint8]
    reaches: NDArray[np.float32]

    @property
    def nbytes(self) -> int:
        return self.tiles.nbytes + self.reaches.nbytes


@dataclass(frozen=True, slots=True)
class PackedPart:
    """Rows of one format: tiles of sixteen, one after the other. factor: as in `Part`.

    lower: of codes that are kept in two streams; then the tiles are those of the upper bits.
    """

    format: Format
    rows: int
    cols: int
    tiles: NDArray[np.uint8]
    factor: float
    lower: Lower | None = None

    @property
    def count(self) -> int:
        """Tiles; the last may have rows that are not there."""
        return -(-self.rows // layout.TILE)

    @property
    def tile_bytes(self) -> int:
        return layout.tile_bytes(streams.UPPER if self.lower else self.format, self.cols)

    @property
    def lower_tile_bytes(self) -> int:
        return self.cols // layout.BLOCK * streams.LOWER_BYTES if self.lower else 0

    @property
    def nbytes(self) -> int:
        return self.tiles.nbytes + (self.lower.nbytes if self.lower else 0)


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
        return sum(part.nbytes for part in self.parts)


def pack(
    parts: Sequence[Part],
    cols: int,
    library: Library,
    memory: Memory,
    packing: Packing,
    searched: bool,
) -> CpuWeight:
    """Hand in jobs that decode and pack all rows, chunk by chunk, in any order, side by side.

    The weight is there at once; its contents are when all jobs are done.
    """
    packed = []
    runs = _runs(parts)
    for group in runs:
        fmt, rows = group[0].format, sum(part.rows for part in group)
        count = -(-rows // layout.TILE)
        in_two = searched and len(runs) == 1 and streams.fits(fmt, cols)
        size = count * layout.tile_bytes(streams.UPPER if in_two else fmt, cols)
        tiles = memory.take((size,), np.uint8)
        lower = _lower(count, cols, memory) if in_two else None
        packed.append(PackedPart(fmt, rows, cols, tiles, group[0].factor, lower))
        _hand_in(packed[-1], group, library, packing)
    return CpuWeight(tuple(packed), cols)


def _lower(count: int, cols: int, memory: Memory) -> Lower:
    size = count * cols // layout.BLOCK * streams.LOWER_BYTES
    reaches = memory.take((count * layout.TILE,), np.float32)
    return Lower(memory.take((size,), np.uint8), reaches)


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
        kernel = _unpacker(target, part, library)
        for start in range(0, part.rows, step):
            stop = min(start + step, part.rows)
            tile = (first + start) // layout.TILE
            to = address(target.tiles) + tile * target.tile_bytes
            lower = _lower_address(target, tile)
            if kernel and part.stored:
                rows = part.stored.data[start:stop]
                words = (kernel, to, stop - start, target.cols, address(rows), lower)
                packing.record(words, rows, partial(part.stored.taken, start, stop))
            else:
                places = (to, stop - start, target.cols, *([lower] if lower else []))
                packing.submit(_job(part, start, stop, places, _packer(target, library)))
        first += part.rows


def _lower_address(target: PackedPart, tile: int) -> int:
    """Of a tile's lowest bits; 0 = they are not apart."""
    if target.lower is None:
        return 0
    return address(target.lower.tiles) + tile * target.lower_tile_bytes


def _unpacker(target: PackedPart, part: Part, library: Library) -> int:
    """The kernel that takes the bytes of the file as they are; 0 = there is none."""
    fmt = part.format
    if part.stored is None:
        return 0
    if fmt.dense:
        return library.address("_cpu.pack_kernels", "pack_dense", layout.DENSE_BYTES[fmt.dense])
    blocks = part.stored.blocks
    if blocks is None or tuple(plane.bits for plane in blocks.planes) != layout.PLANES[fmt.bits]:
        return 0
    if target.lower:
        return library.address("_cpu.stream_kernels", "unpack", blocks)
    return library.address("_cpu.unpack_kernels", "unpack", fmt, blocks)


def _job(
    part: Part, start: int, stop: int, places: tuple[int, ...], packer: Callable[..., None]
) -> Callable[[], None]:
    def run() -> None:
        planar = part.decode(start, stop)
        arrays = [np.ascontiguousarray(a) for a in _arrays(planar)]
        packer(np.array([*places, *map(address, arrays)], np.int64))

    return run


def _arrays(planar: Planar) -> list[NDArray[Any]]:
    """In the order in which the packing kernels take them; those that are absent are empty."""
    if planar.format.dense:
        return [planar.codes]
    factors = (planar.scale, planar.min, planar.super_scale, planar.super_min)
    return [planar.codes, *(np.empty(0) if f is None else f for f in factors)]


def _packer(target: PackedPart, library: Library) -> Callable[[NDArray[np.int64]], None]:
    fmt = target.format
    if target.lower:
        spec: tuple[Any, ...] = ("_cpu.stream_kernels", "pack")
    elif fmt.dense:
        spec = ("_cpu.pack_kernels", "pack_dense", layout.DENSE_BYTES[fmt.dense])
    else:
        spec = ("_cpu.pack_kernels", "pack_quantised", fmt)
    kernel = library.address(*spec)
    call = function_at(kernel, 3)

    def pack_with(words: NDArray[np.int64]) -> None:
        library.wait(kernel)
        call(address(words), 0, 0)

    return pack_with
