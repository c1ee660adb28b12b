"""Kernels of `largest` for Triton: the best of every chunk of a row, then the best of those.

What is compared are keys, one int64 a number, all different: the number's bits, made to ascend as
the number does, above its id, made to descend. So chunks may be chosen from in any order.
-(2**63) is below the key of every number.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import triton
import triton.language as tl

from turbodflash_kernels._gpu.device import GpuDevice

CHUNK = 4096  # numbers that a program takes from
MOST = 64  # numbers that it takes: of more, the next round takes those below the last one
WARPS = 8


@triton.jit
def _keys(numbers, ids):
    # NaN counts as minus infinity, and both zeros are equal
    numbers = tl.where(numbers == numbers, numbers, float("-inf"))
    bits = tl.where(numbers == 0, 0.0, numbers).to(tl.int32, bitcast=True)
    ascending = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return (ascending.to(tl.int64) << 32) | (0x7FFFFFFF - ids).to(tl.int64)


@triton.jit
def _best(keys, COUNT: tl.constexpr):
    """The largest keys, descending: [COUNT]. Sorting a part of them takes seconds to compile."""
    i_best = tl.arange(0, COUNT)
    best = tl.full([COUNT], -(2**63), tl.int64)
    for place in range(COUNT):
        largest = tl.max(keys, axis=0)
        best = tl.where(i_best == place, largest, best)
        keys = tl.where(keys == largest, -(2**63), keys)
    return best


@triton.jit
def _of_numbers(
    x, x_stride, width, below, below_stride, keys,
    COUNT: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """keys: [rows, chunks, COUNT], the best of each chunk, of those below `below`[row] if given."""
    i_row, i_chunk, chunks = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    ids = i_chunk * CHUNK + tl.arange(0, CHUNK)
    inside = ids < width
    b_x = tl.load(x + i_row * x_stride + ids, mask=inside, other=0.0)
    b_keys = tl.where(inside, _keys(b_x, ids), -(2**63))
    if below is not None:
        b_keys = tl.where(b_keys < tl.load(below + i_row * below_stride), b_keys, -(2**63))
    p_out = keys + (i_row * chunks + i_chunk) * COUNT + tl.arange(0, COUNT)
    tl.store(p_out, _best(b_keys, COUNT))


@triton.jit
def _of_keys(
    found, width, keys,
    COUNT: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """found: [rows, width]; keys: [rows, chunks, COUNT]."""
    i_row, i_chunk, chunks = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    columns = i_chunk * CHUNK + tl.arange(0, CHUNK)
    b_keys = tl.load(found + i_row * width + columns, mask=columns < width, other=-(2**63))
    p_out = keys + (i_row * chunks + i_chunk) * COUNT + tl.arange(0, COUNT)
    tl.store(p_out, _best(b_keys, COUNT))


@triton.jit
def _look_up(
    keys, x, x_stride, values, ids, stride, count,
    COUNT: tl.constexpr,
):  # fmt: skip
    """keys: [rows, COUNT]; values, ids: [rows, count], columns of wider arrays."""
    i_row, i_key = tl.program_id(0).to(tl.int64), tl.arange(0, COUNT)
    wanted = i_key < count
    b_keys = tl.load(keys + i_row * COUNT + i_key, mask=wanted, other=0)
    b_ids = 0x7FFFFFFF - (b_keys & 0x7FFFFFFF).to(tl.int32)
    b_values = tl.load(x + i_row * x_stride + b_ids, mask=wanted, other=0.0)
    b_values = tl.where(b_values == b_values, b_values, float("-inf"))
    tl.store(values + i_row * stride + i_key, b_values, mask=wanted)
    tl.store(ids + i_row * stride + i_key, b_ids, mask=wanted)


def refuse(device: GpuDevice, *, count: int) -> str | None:
    return None


def bind(
    device: GpuDevice, *, count: int
) -> Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    def largest(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows = x.shape[0]
        values = device.scratch((rows, count), np.float32)
        ids = device.scratch((rows, count), np.int32)
        last = None
        for start in range(0, count, MOST):
            stop = min(start + MOST, count)
            keys = _round(device, x, last, triton.next_power_of_2(stop - start))
            _give(device, keys, x, values[:, start:stop], ids[:, start:stop])
            last = keys[:, -1:]
        return values, ids

    return largest


def _round(
    device: GpuDevice, x: torch.Tensor, below: torch.Tensor | None, count: int
) -> torch.Tensor:
    """The largest keys of every row that are less than `below`: int64 [rows, count], descending."""
    rows, width = x.shape
    chunk = _chunk(width, count)
    chunks = triton.cdiv(width, chunk)
    keys = device.scratch((rows, chunks * count), np.int64)
    below_stride = below.stride(0) if below is not None else 0
    device.launch(
        _of_numbers, (rows, chunks), x, x.stride(0), width, below, below_stride, keys,
        warps=WARPS, stages=1, COUNT=count, CHUNK=chunk,
    )  # fmt: skip
    while chunks > 1:
        found, width = keys, chunks * count
        chunk = _chunk(width, count)
        chunks = triton.cdiv(width, chunk)
        keys = device.scratch((rows, chunks * count), np.int64)
        device.launch(
            _of_keys, (rows, chunks), found, width, keys,
            warps=WARPS, stages=1, COUNT=count, CHUNK=chunk,
        )  # fmt: skip
    return keys


def _give(
    device: GpuDevice, keys: torch.Tensor, x: torch.Tensor, values: torch.Tensor, ids: torch.Tensor
) -> None:
    rows, count = values.shape
    device.launch(
        _look_up, (rows,), keys, x, x.stride(0), values, ids, values.stride(0), count,
        warps=1, stages=1, COUNT=keys.shape[1],
    )  # fmt: skip


def _chunk(width: int, count: int) -> int:
    return max(min(CHUNK, triton.next_power_of_2(width)), 2 * count)
