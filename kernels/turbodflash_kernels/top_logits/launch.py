"""How `top_logits` is recorded on the CPU device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from turbodflash_kernels._cpu import layout, streams
from turbodflash_kernels._cpu.device import MANY_ROWS, CpuDevice
from turbodflash_kernels._cpu.preparing import preparation, quantised
from turbodflash_kernels._cpu.team import address
from turbodflash_kernels._cpu.weight import CpuWeight, Lower, PackedPart
from turbodflash_kernels._cpu.words import float_word
from turbodflash_kernels.largest import launch as largest
from turbodflash_kernels.linear import launch as linear
from turbodflash_kernels.op import Array, Prologue
from turbodflash_kernels.top_logits.composed import compose

FLOORS_PER_TASK = 8
SIFTED_PER_TASK = 64  # tiles
TILES_OF_ONE, TILES_OF_SEVERAL = 32, 128
"""Rows. With fewer tiles for each logit that is asked for, it is faster to compute all."""


def refuse(device: CpuDevice, *, weight: CpuWeight, prologue: Prologue, **rest: Any) -> str | None:
    return linear.refuse(device, weight=weight, prologue=prologue, bias=None)


def bind(
    device: CpuDevice,
    *,
    weight: CpuWeight,
    prologue: Prologue,
    softcap: float,
    count: int,
    width: int,
) -> Callable[[Array], tuple[Array, Array]]:
    composed = compose(
        device, weight=weight, prologue=prologue, softcap=softcap, count=count, width=width
    )
    part = weight.parts[0]
    if not part.lower or softcap or part.count < TILES_OF_ONE * count:
        return composed
    most = MANY_ROWS if part.count >= TILES_OF_SEVERAL * count else 1
    sifted = _sifted(device, part, part.lower, prologue, count, width)

    def top_logits(x: Array) -> tuple[Array, Array]:
        if len(x) > most == 1:
            return composed(x)
        found, pieces = largest.room(device, len(x), count), -(-len(x) // most)
        for piece in range(pieces):  # all logits of many rows would be much memory
            first, end = (len(x) * i // pieces for i in (piece, piece + 1))
            sifted(*(rows[first:end] for rows in (x, *found)))
        return found

    return top_logits


def _sifted(
    device: CpuDevice, part: PackedPart, lower: Lower, prologue: Prologue, count: int, width: int
) -> Callable[[Array, Array, Array], None]:
    """sifted(x, values, ids): by way of what the upper bits of the codes say of all logits."""
    quantise = preparation(device, prologue, True)
    rough = linear.product(device, part, streams.UPPER_ALONE)
    floors_of = device.kernel("top_logits", "floors", device.isa)
    sift = device.kernel("top_logits", "sift", device.isa)
    find = largest.finder(device, count)
    weight = (address(part.tiles), address(lower.tiles), part.cols // layout.BLOCK)
    factor, reaches = float_word(part.factor), address(lower.reaches)
    tiles, floor_tasks = -(-width // layout.TILE), -(-count // FLOORS_PER_TASK)
    sift_tasks = -(-tiles // SIFTED_PER_TASK)

    def top_logits(x: Array, values: Array, ids: Array) -> None:
        n = len(x)
        codes = quantised(device, quantise, prologue, x, part.cols)
        lines, _, row_stride, block_stride = codes.words()
        logits = device.scratch((n, part.count * layout.TILE), np.float32)
        rough(codes, n, logits, 0, None, None)
        find(logits[:, :width], values, ids)
        floors = device.scratch((n, count), np.float32)
        sizes = device.scratch((n,), np.float32)
        device.keep(part.tiles, lower.tiles, lower.reaches)
        words = (
            *(*weight, row_stride, block_stride, factor, lines),
            *(address(ids), count, address(logits), logits.strides[0], reaches),
            *(address(floors), address(sizes)),
        )
        device.record(floors_of, n * floor_tasks, *words, FLOORS_PER_TASK, rows=n)
        device.record(sift, n * sift_tasks, *words, SIFTED_PER_TASK, tiles, n, rows=n)
        find(logits[:, :width], values, ids)

    return top_logits
