"""Matrices as the GPU keeps them, and how they are loaded."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from turbodflash_kernels._gpu import layout
from turbodflash_kernels._gpu.layout import Packed, bytes_per_weight
from turbodflash_kernels.op import Part
from turbodflash_kernels.planar import Format

if TYPE_CHECKING:
    from turbodflash_kernels._gpu.device import GpuDevice

__all__ = ["GpuWeight", "PackedPart", "bytes_per_weight", "pack"]

JOB_BYTES = 1 << 22  # codes decoded at once: on the way they take about ten times as much
MOST_WORKERS = 8


@dataclass(frozen=True, slots=True)
class PackedPart:
    """Rows of one format. inputs: columns with those that were filled up."""

    format: Format
    rows: int
    inputs: int
    arrays: Packed


@dataclass(frozen=True, slots=True)
class GpuWeight:
    """A matrix [rows, cols] as parts, one below the other."""

    parts: tuple[PackedPart, ...]
    cols: int

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    @property
    def inputs(self) -> int:
        return max(part.inputs for part in self.parts)

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for part in self.parts for a in part.arrays if a is not None)


def pack(parts: Sequence[Part], cols: int, device: GpuDevice) -> GpuWeight:
    """Decode on several threads, a block of rows at a time, and pack on the device.

    Beside the packed matrix there are never more than a few blocks of rows.
    """
    packed, jobs = [], []
    for group in _runs(parts):
        format, rows = group[0].format, sum(part.rows for part in group)
        inputs = layout.padded_cols(format, cols)
        arrays = Packed(
            **{
                name: device.zeros(shape, kind)
                for name, (shape, kind) in layout.shapes(format, rows, cols).items()
            }
        )
        packed.append(PackedPart(format, rows, inputs, arrays))
        jobs += _jobs(packed[-1], group, cols, device)
    if device.computes:
        _work(jobs)
    return GpuWeight(tuple(packed), cols)


def _runs(parts: Sequence[Part]) -> list[list[Part]]:
    """Neighbours of one format whose rows fill whole tiles are one matrix."""
    runs: list[list[Part]] = []
    for part in parts:
        last = runs[-1] if runs else None
        if (
            last
            and last[0].format == part.format
            and sum(before.rows for before in last) % layout.TILE_ROWS == 0
        ):
            last.append(part)
        else:
            runs.append([part])
    return runs


def _jobs(
    target: PackedPart, parts: Sequence[Part], cols: int, device: GpuDevice
) -> list[Callable[[], None]]:
    step = max(JOB_BYTES // cols // layout.TILE_ROWS, 1) * layout.TILE_ROWS
    jobs = []
    first = 0
    for part in parts:
        for start in range(0, part.rows, step):
            stop = min(start + step, part.rows)
            jobs.append(_job(target, part, start, stop, first + start, device))
        first += part.rows
    return jobs


def _job(
    target: PackedPart, part: Part, start: int, stop: int, to: int, device: GpuDevice
) -> Callable[[], None]:
    def run() -> None:
        packed = layout.pack(part.decode(start, stop), device.place)
        packed.unit.mul_(part.factor)
        for whole, some in zip(target.arrays, packed, strict=True):
            if whole is not None and some is not None:
                tiles = whole.ndim == 4
                at = to // layout.TILE_ROWS if tiles else to
                whole[at : at + len(some)] = some

    return run


def _work(jobs: Sequence[Callable[[], None]]) -> None:
    if len(jobs) == 1:
        return jobs[0]()
    with ThreadPoolExecutor(min(MOST_WORKERS, os.cpu_count() or 1)) as workers:
        for done in [workers.submit(job) for job in jobs]:
            done.result()
