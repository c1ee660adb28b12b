"""How `attend` is recorded on the CPU device."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from turbodflash_kernels._cpu.device import MANY_ROWS, CpuDevice
from turbodflash_kernels._cpu.kv import CHUNK, PARTIAL_EXTRA, CpuKV
from turbodflash_kernels._cpu.team import SCRATCH_BYTES, address
from turbodflash_kernels._cpu.words import float_word
from turbodflash_kernels.op import Array

ROWS_PER_TASK = 16
SPLITS_PER_THREAD = 4


def refuse(
    device: CpuDevice, *, kv: CpuKV, heads: int, kv_heads: int, head_dim: int, scale: float
) -> str | None:
    if head_dim % 16:
        return f"heads of {head_dim} are no multiple of 16"
    needed = 4 * ((head_dim + PARTIAL_EXTRA) * (ROWS_PER_TASK * heads // kv_heads + 4) + 4 * CHUNK)
    if needed > SCRATCH_BYTES:
        return f"{heads // kv_heads} heads of {head_dim} need {needed} bytes a thread"
    return None


def bind(
    device: CpuDevice, *, kv: CpuKV, heads: int, kv_heads: int, head_dim: int, scale: float
) -> Callable[[Array, Array], Array]:
    formats = (kv.format_k, kv.format_v)
    split = device.kernel("attend", "split", *formats)
    combine = device.kernel("attend", "combine")
    by_rows = device.kernel("attend", "rows", *formats)
    group, chunks = heads // kv_heads, kv.positions // CHUNK
    scale_bits = float_word(scale)
    store = (address(kv.k), kv.k.strides[0], address(kv.v), kv.v.strides[0])

    def attend(q: Array, positions: Array) -> Array:
        n = len(q)
        out = device.scratch((n, heads * head_dim), np.float32)
        words = (
            *(address(q), q.strides[0], address(positions), n),
            *(kv_heads, group, head_dim, scale_bits, *store, address(out), out.strides[0]),
        )
        device.keep(q, positions, kv)
        if n > MANY_ROWS:
            tasks = -(-n // ROWS_PER_TASK) * kv_heads
            device.record(by_rows, tasks, *words, ROWS_PER_TASK, rows=n)
            return out
        partials = device.scratch(
            (kv_heads, chunks, n * group, head_dim + PARTIAL_EXTRA), np.float32
        )
        splits = min(chunks, device.threads * SPLITS_PER_THREAD)
        more = (address(partials), chunks, splits)
        device.record(split, splits * kv_heads, *words, *more, rows=n)
        device.record(combine, n * kv_heads, *words, *more, rows=n)
        return out

    return attend
