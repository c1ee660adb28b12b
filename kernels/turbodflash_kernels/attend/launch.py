"""How `attend` is recorded on the CPU device."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from turbodflash_kernels._cpu.device import MANY_ROWS, CpuDevice
from turbodflash_kernels._cpu.kv import CHUNK, PARTIAL_EXTRA, CpuKV
from turbodflash_kernels._cpu.team import SCRATCH_BYTES, address
from turbodflash_kernels._cpu.words import float_word
from turbodflash_kernels.errors import NoKernel
from turbodflash_kernels.op import Array

ROWS_PER_TASK = 16
TREE_ROWS_PER_TASK = 4
MOST_TREE_ROWS = 32
SPLITS_PER_THREAD = 4


def refuse(
    device: CpuDevice, *, heads: int, kv_heads: int, head_dim: int, **others: object
) -> str | None:
    if head_dim % 16:
        return f"heads of {head_dim} are no multiple of 16"
    group, scores = heads // kv_heads, 4 * CHUNK
    totals = (head_dim + PARTIAL_EXTRA) * (ROWS_PER_TASK * group + 4)
    needed = 4 * (scores + max(totals, 2 * CHUNK * head_dim))
    if needed > SCRATCH_BYTES:
        return f"{group} heads of {head_dim} need {needed} bytes a thread"
    return None


def bind(
    device: CpuDevice,
    *,
    kv: CpuKV,
    heads: int,
    kv_heads: int,
    head_dim: int,
    scale: float,
    causal: bool = True,
    window: int = 0,
    sinks: Array | None = None,
) -> Callable[..., Array]:
    kind = (kv.format_k.type.name, kv.format_v.type.name, window > 0)
    combine = device.kernel("attend", "combine")
    by_rows, split = (device.kernel("attend", name, *kind) for name in ("rows", "split"))
    group, chunks = heads // kv_heads, kv.positions // CHUNK
    shape = (kv_heads, group, head_dim, float_word(scale))
    store = (address(kv.k), kv.k.strides[0], address(kv.v), kv.v.strides[0])
    rule = (window, not causal, 0 if sinks is None else address(sinks))

    def attend(q: Array, positions: Array, parents: Array | None = None) -> Array:
        n = len(q)
        if parents is not None:
            _check_tree(n, causal)
        out = device.scratch((n, heads * head_dim), np.float32)
        device.keep(q, positions, parents, kv, sinks)
        words = (
            *(address(q), q.strides[0], address(positions), n, *shape, *store),
            *(address(out), out.strides[0], *rule),
        )
        if n > MANY_ROWS and parents is None:
            tasks = -(-n // ROWS_PER_TASK) * kv_heads
            device.record(by_rows, tasks, *words, ROWS_PER_TASK, rows=n)
            return out
        partials = device.scratch(
            (kv_heads, chunks, n * group, head_dim + PARTIAL_EXTRA), np.float32
        )
        splits = min(chunks, device.threads * SPLITS_PER_THREAD)
        tree = 0 if parents is None else address(parents)
        more = (TREE_ROWS_PER_TASK, address(partials), chunks, splits, tree)
        device.record(split, splits * kv_heads, *words, *more, rows=n)
        if parents is not None:
            branches = device.kernel("attend", "branches", *kind)
            device.record(branches, -(-n // TREE_ROWS_PER_TASK) * kv_heads, *words, *more, rows=n)
        device.record(combine, n * kv_heads, *words, *more, rows=n)
        return out

    return attend


def _check_tree(rows: int, causal: bool) -> None:
    if not causal:
        raise NoKernel("the rows of a block see each other, those of a tree must not")
    if rows > MOST_TREE_ROWS:
        raise NoKernel(
            f"a tree of {rows} rows is over the {MOST_TREE_ROWS} that the CPU verifies at once",
            hint="draft a smaller tree",
        )
