"""How `linear` is recorded on the CPU device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from turbodflash_kernels._cpu import layout
from turbodflash_kernels._cpu.device import MANY_ROWS, CpuDevice, Stream
from turbodflash_kernels._cpu.team import address
from turbodflash_kernels._cpu.weight import CpuWeight, PackedPart
from turbodflash_kernels._cpu.words import EACH_THREAD, float_word
from turbodflash_kernels.op import Array, Gated, Prologue, RmsNorm

TASKS_PER_THREAD = 16  # few rows: enough to even out a core that is late, few enough to be cheap
ROWS_PER_TASK = 32  # many rows: their codes stay in the second-level cache
TILES_PER_TASK = 8
PREPARED_PER_TASK = 2
PRIVATE_ROWS = 2


def refuse(
    device: CpuDevice, *, weight: CpuWeight, prologue: Prologue, bias: Array | None
) -> str | None:
    quantised = [part for part in weight.parts if not part.format.dense]
    if quantised and weight.cols % layout.BLOCK:
        return f"quantised rows of {weight.cols} inputs are not whole blocks of {layout.BLOCK}"
    if quantised and weight.cols > layout.MOST_COLS:
        return f"quantised rows of {weight.cols} inputs are over {layout.MOST_COLS}"
    return None


def bind(
    device: CpuDevice, *, weight: CpuWeight, prologue: Prologue, bias: Array | None
) -> Callable[..., Array]:
    products = [_product(device, part) for part in weight.parts]
    quantised = any(not part.format.dense for part in weight.parts)
    dense = any(part.format.dense for part in weight.parts)
    quantise = _preparation(device, prologue, True) if quantised else 0
    keep = _preparation(device, prologue, False) if dense and prologue else 0

    def linear(x: Array, residual: Array | None = None) -> Array:
        n = len(x)
        out = device.scratch((n, weight.rows), np.float32)
        codes = _quantised(device, quantise, prologue, x, weight.cols) if quantised else None
        plain = _kept(device, keep, prologue, x, weight.cols) if keep else x
        first = 0
        for part, product in zip(weight.parts, products, strict=True):
            left = plain if part.format.dense else codes
            product(left, n, out, 4 * first, bias, residual)
            first += part.rows
        return out

    return linear


class _Codes:
    """Activations [n, k] as int8 codes, with what they mean per block of 32 (see rows.py).

    Of a row or two every thread makes its own: that is sooner done than waited for.
    """

    def __init__(self, device: CpuDevice, n: int, k: int) -> None:
        self.k, self.private = k, n <= PRIVATE_ROWS and n * k <= layout.PRIVATE_CODES
        if self.private:
            return
        filled = layout.filled(n)
        self.codes = device.scratch((filled, k), np.int8)
        self.info = device.scratch((filled, k // layout.BLOCK, layout.INFO_WORDS), np.int32)

    def words(self) -> tuple[int, ...]:
        """codes, code_stride, info, info_stride."""
        if self.private:
            return (0, self.k, 0, self.k)
        arrays = (self.codes, self.info)
        return tuple(word for array in arrays for word in (address(array), array.strides[0]))


def _preparation(device: CpuDevice, prologue: Prologue, quantised: bool) -> int:
    kind = "none"
    if isinstance(prologue, RmsNorm):
        kind = "norm"
    elif isinstance(prologue, Gated):
        kind = prologue.activation
    return device.kernel("linear", "prepare", kind, quantised)


def _prepared(
    device: CpuDevice,
    kernel: int,
    prologue: Prologue,
    x: Array,
    k: int,
    out: tuple[int, ...],
    private: bool = False,
) -> None:
    n = len(x)
    norm, eps = 0, 0
    if isinstance(prologue, RmsNorm):
        norm, eps = address(prologue.weight), float_word(prologue.eps)
        device.keep(prologue.weight)
    device.keep(x)
    words = (address(x), x.strides[0], k, norm, eps, PREPARED_PER_TASK, n)
    tasks = EACH_THREAD if private else -(-n // PREPARED_PER_TASK)
    device.record(kernel, tasks, *words, *out, rows=n)


def _quantised(device: CpuDevice, kernel: int, prologue: Prologue, x: Array, k: int) -> _Codes:
    codes = _Codes(device, len(x), k)
    _prepared(device, kernel, prologue, x, k, codes.words(), codes.private)
    return codes


def _kept(device: CpuDevice, kernel: int, prologue: Prologue, x: Array, k: int) -> Array:
    out = device.scratch((len(x), k), np.float32)
    _prepared(device, kernel, prologue, x, k, (address(out), out.strides[0]))
    return out


def _product(device: CpuDevice, part: PackedPart) -> Callable[..., None]:
    if part.format.dense:
        kernel = device.kernel("linear", "product_dense", part.format.dense)
    else:
        kernel = device.kernel("linear", "product_quantised", part.format, device.isa)
    tiles, tile_bytes, count = address(part.tiles), part.tile_bytes, part.count
    blocks, rest = divmod(part.cols, layout.BLOCK)

    def product(
        left: Any, n: int, out: Array, column: int, bias: Array | None, residual: Array | None
    ) -> None:
        if isinstance(left, _Codes):
            inputs = left.words()
        else:
            device.keep(left)
            inputs = (address(left), left.strides[0], rest)
        per_task, row_step = _task_shape(device, n, count)
        tasks = -(-count // per_task) * -(-n // row_step)
        device.keep(part.tiles, bias, residual)
        device.record(
            kernel,
            tasks,
            *(tiles, tile_bytes, count, per_task, n, row_step),
            *(blocks, address(out) + column, out.strides[0], part.rows),
            address(bias) + column if bias is not None else 0,
            address(residual) + column if residual is not None else 0,
            *inputs,
            rows=n,
            stream=Stream(tiles, per_task * tile_bytes) if n <= MANY_ROWS else None,
        )

    return product


def _task_shape(device: CpuDevice, n: int, tiles: int) -> tuple[int, int]:
    """Tiles and activation rows of a task; they decide who computes what, never a result."""
    if n > MANY_ROWS:
        return min(TILES_PER_TASK, -(-tiles // device.threads_batch)), ROWS_PER_TASK
    return -(-tiles // (device.threads * TASKS_PER_THREAD)), n
