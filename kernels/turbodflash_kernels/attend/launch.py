"""How `attend` is recorded on the CPU device."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from turbodflash_kernels._cpu.chunk_words import (
    DIRECT_TYPES,
    MOST_DIRECT,
    MOST_QUERIES,
    SPLITS_PER_THREAD,
    bounds_bytes,
    halved,
    space_bytes,
)
from turbodflash_kernels._cpu.device import MANY_ROWS, CpuDevice
from turbodflash_kernels._cpu.kv import CpuKV, summed
from turbodflash_kernels._cpu.kv_words import CHUNK, PARTIAL_EXTRA, SCORES_K, SUMS_V
from turbodflash_kernels._cpu.team import SCRATCH_BYTES, address
from turbodflash_kernels._cpu.words import float_word
from turbodflash_kernels.errors import NoKernel
from turbodflash_kernels.kv import HeadFormat
from turbodflash_kernels.op import Array

TREE_ROWS_PER_TASK = 4
MOST_TREE_ROWS = 32
TASKS_PER_THREAD = 8


def refuse(
    device: CpuDevice, *, kv: CpuKV, heads: int, kv_heads: int, **others: object
) -> str | None:
    widths = summed(kv.format_k), summed(kv.format_v)
    if any(width % 16 for width in widths):
        return f"heads of {widths[0]} and {widths[1]} numbers are no multiples of 16"
    group = heads // kv_heads
    needed = max(_bytes_of_rows(kv, group), _bytes_of_trees(kv, group))
    if needed > SCRATCH_BYTES:
        return f"{group} heads of {max(widths)} need {needed} bytes a thread"
    return None


def _bytes_of_rows(kv: CpuKV, group: int) -> int:
    """What `rows` takes of a thread's memory; `split` takes less."""
    widths = summed(kv.format_k), summed(kv.format_v)
    queries = min(_rows_per_task(group) * group, MOST_QUERIES)
    each = 4 * (widths[0] + 2 * (widths[1] + PARTIAL_EXTRA))
    return queries * each + bounds_bytes(queries) + space_bytes(queries, widths[0])


def _bytes_of_trees(kv: CpuKV, group: int) -> int:
    """What `branches` takes: also a chunk as it is stored."""
    widths = summed(kv.format_k), summed(kv.format_v)
    stored = CHUNK * (kv.format_k.row_bytes + kv.format_v.row_bytes)
    return 4 * group * widths[0] + bounds_bytes(group) + space_bytes(group, widths[0]) + stored


def _rows_per_task(group: int) -> int:
    return max(MOST_QUERIES // group, 1)


def _shared_out(rows: int, kv_heads: int, group: int, threads: int) -> int:
    """Rows of a task. The more, the less often is a chunk decoded, down to half as many where
    threads would run out of tasks to even out."""
    each = -(-rows * kv_heads // (threads * TASKS_PER_THREAD))
    return min(max(each, _rows_per_task(2 * group)), _rows_per_task(group))


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
    kernels = ("combine", "rows", "split")
    combine, by_rows, split = (device.kernel("attend", name) for name in kernels)
    group, width_v = heads // kv_heads, summed(kv.format_v)
    shape = (address(kv.words), kv_heads, group, head_dim, float_word(scale))
    chunk = device.library.address("_cpu.chunk_kernels", "chunk")
    rule = (window, not causal, 0 if sinks is None else address(sinks), chunk)
    direct = _direct(device, kv, group)

    def attend(q: Array, positions: Array, parents: Array | None = None) -> Array:
        n = len(q)
        if parents is not None:
            _check_tree(n, causal)
        out = device.scratch((n, heads * head_dim), np.float32)
        device.keep(q, positions, parents, kv, sinks)
        words = (
            *(address(q), q.strides[0], address(positions), n, *shape),
            *(address(out), out.strides[0], *rule),
        )
        if n > MANY_ROWS and parents is None:
            each = _shared_out(n, kv_heads, group, device.threads_batch)
            device.record(by_rows, -(-n // each) * kv_heads, *words, each, rows=n)
            return out
        partials = device.scratch(
            (kv_heads, kv.most_seen, n * group, width_v + PARTIAL_EXTRA), np.float32
        )
        splits = min(kv.chunks, device.threads * SPLITS_PER_THREAD)
        tree = 0 if parents is None else address(parents)
        more = (TREE_ROWS_PER_TASK, address(partials), kv.most_seen, splits, tree)
        few = halved(n * group, kv_heads, device.threads)
        tasks = splits * kv_heads * (2 if few else 1)
        alone = direct if n == 1 else (0, 0)
        device.record(split, tasks, *words, *more, *alone, few, tasks, rows=n)
        if parents is not None:
            branches = device.kernel("attend", "branches")
            tasks = -(-n // TREE_ROWS_PER_TASK) * kv_heads
            device.record(branches, tasks, *words, *more, *direct, rows=n)
        device.record(combine, n * kv_heads, *words, *more, rows=n)
        return out

    return attend


def _direct(device: CpuDevice, kv: CpuKV, group: int) -> tuple[int, int]:
    """Kernels that need no decoded copy of keys and of values, for the queries of one row; 0 where
    whole numbers are multiplied."""

    def kernel(name: str, format: HeadFormat, whole: int) -> int:
        type = format.type.name
        if type not in DIRECT_TYPES or group > MOST_DIRECT or kv.words[whole // 8]:
            return 0
        return device.library.address("_cpu.direct_kernels", name, type, group)

    return kernel("scores", kv.format_k, SCORES_K), kernel("sums", kv.format_v, SUMS_V)


def _check_tree(rows: int, causal: bool) -> None:
    if not causal:
        raise NoKernel("the rows of a block see each other, those of a tree must not")
    if rows > MOST_TREE_ROWS:
        raise NoKernel(
            f"a tree of {rows} rows is over the {MOST_TREE_ROWS} that the CPU verifies at once",
            hint="draft a smaller tree",
        )
