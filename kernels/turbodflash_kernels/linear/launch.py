"""How `linear` is recorded on the CPU device."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Any

import numpy as np

from turbodflash_kernels._cpu import layout, streams
from turbodflash_kernels._cpu.device import MANY_ROWS, CpuDevice, Stream
from turbodflash_kernels._cpu.preparing import Codes, kept, preparation, quantised
from turbodflash_kernels._cpu.team import address
from turbodflash_kernels._cpu.weight import CpuWeight, PackedPart
from turbodflash_kernels._cpu.words import float_word
from turbodflash_kernels.op import Array, Prologue

TASKS_PER_THREAD = 16  # few rows: enough to even out a core that is late, few enough to be cheap
TILES_PER_TASK = 8
TASKS_OF_A_PANEL = 3  # of each thread, at least, where there is a single one


def refuse(
    device: CpuDevice, *, weight: CpuWeight, prologue: Prologue, bias: Array | None
) -> str | None:
    return unfit(weight)


def unfit(weight: CpuWeight) -> str | None:
    """Why nothing can be multiplied with this matrix, or None."""
    coded = [part for part in weight.parts if not part.format.dense]
    if coded and weight.cols % layout.BLOCK:
        return f"quantised rows of {weight.cols} inputs are not whole blocks of {layout.BLOCK}"
    if coded and weight.cols > layout.MOST_COLS:
        return f"quantised rows of {weight.cols} inputs are over {layout.MOST_COLS}"
    return None


def bind(
    device: CpuDevice, *, weight: CpuWeight, prologue: Prologue, bias: Array | None
) -> Callable[..., Array]:
    multiplied = products(device, weight)
    coded = any(not part.format.dense for part in weight.parts)
    dense = any(part.format.dense for part in weight.parts)
    quantise = preparation(device, prologue, True) if coded else 0
    keep = preparation(device, prologue, False) if dense and prologue else 0

    def linear(x: Array, residual: Array | None = None) -> Array:
        n = len(x)
        out = device.scratch((n, weight.rows), np.float32)
        codes = quantised(device, quantise, prologue, x, weight.cols) if coded else None
        plain = kept(device, keep, prologue, x, weight.cols) if keep else x
        for part, (first, multiply) in zip(weight.parts, multiplied, strict=True):
            left = plain if part.format.dense else codes
            multiply(left, n, out, 4 * first, bias, residual)
        return out

    return linear


def products(device: CpuDevice, weight: CpuWeight) -> list[tuple[int, Callable[..., None]]]:
    """Of each part, the column that its results begin with, and its product."""
    ends = accumulate((part.rows for part in weight.parts), initial=0)
    return [
        (first, product(device, part, _view(part)))
        for first, part in zip(ends, weight.parts, strict=False)
    ]


def product_kernel(device: CpuDevice, part: PackedPart, view: streams.View) -> int:
    """The kernel that multiplies rows with what a view shows of a part of a matrix."""
    if part.format.dense:
        return device.kernel("linear", "product_dense", part.format.dense)
    return device.kernel("linear", "product_quantised", view, device.isa)


def _view(part: PackedPart) -> streams.View:
    return streams.BOTH if part.lower else streams.lifted(part.format)


def product(device: CpuDevice, part: PackedPart, view: streams.View) -> Callable[..., None]:
    """multiply(left, n, out, column, bias, residual): record it, for results from byte `column` of
    out's rows on.
    """
    kernel = product_kernel(device, part, view)
    tiles, tile_bytes, count = address(part.tiles), part.tile_bytes, part.count
    blocks, rest = divmod(part.cols, layout.BLOCK)
    factor = float_word(part.factor * view.step)
    lower = part.lower.tiles if part.lower and view.lower else None

    def multiply(
        left: Any, n: int, out: Array, column: int, bias: Array | None, residual: Array | None
    ) -> None:
        if isinstance(left, Codes):
            inputs: tuple[int, ...] = left.words()
        else:
            device.keep(left)
            inputs = (address(left), left.strides[0], rest, 0)
        per_task, row_step = task_shape(device, n, count)
        tasks = -(-count // per_task) * -(-n // row_step)
        device.keep(part.tiles, lower, bias, residual)
        device.record(
            kernel,
            tasks,
            *(tiles, tile_bytes, count, per_task, n, row_step),
            *(blocks, address(out) + column, out.strides[0], part.rows),
            address(bias) + column if bias is not None else 0,
            address(residual) + column if residual is not None else 0,
            *inputs,
            factor,
            address(lower) if lower is not None else 0,
            rows=n,
            stream=Stream(tiles, per_task * tile_bytes) if n <= MANY_ROWS else None,
        )

    return multiply


def task_shape(device: CpuDevice, n: int, tiles: int) -> tuple[int, int]:
    """Tiles and activation rows of a task; they decide who computes what, never a result."""
    if n > MANY_ROWS:
        tasks = device.threads_batch * (TASKS_OF_A_PANEL if n <= layout.PANEL else 1)
        return min(TILES_PER_TASK, _whole_pairs(tiles, tasks)), layout.PANEL
    return _whole_pairs(tiles, device.threads * TASKS_PER_THREAD), n


def _whole_pairs(tiles: int, tasks: int) -> int:
    """Tiles of each of so many tasks: a tile alone takes as long as the two that come abreast."""
    return 2 * -(-tiles // (2 * tasks))
