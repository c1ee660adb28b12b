"""Kernels of `attend` for Numba: who computes which chunk for whom.

Chunks go to threads when rows are few, rows to threads when they are many; the chunks of a tree
that its own keys lie in go to rows. All do exactly the arithmetic of _cpu/chunk_kernels.py, in the
same order, so a row's bits do not depend on its company.
"""

from __future__ import annotations

import numba

from turbodflash_kernels._cpu.chunk_kernels import (
    QUERIES,
    SCORE_BYTES,
    chunk_kernel,
    clear,
    merge,
    write_out,
)
from turbodflash_kernels._cpu.gather_kernels import gather, places
from turbodflash_kernels._cpu.kv import CHUNK, PARTIAL_EXTRA
from turbodflash_kernels._cpu.simd import (
    load_f32,
    load_i32,
    load_i64,
)

inline = numba.njit(error_model="numpy")

# words of all kernels
Q, Q_STRIDE, POSITIONS, N, KV_HEADS, GROUP, HEAD_DIM, SCALE = range(0, 64, 8)
K, K_HEAD_BYTES, V, V_HEAD_BYTES, OUT, OUT_STRIDE = range(64, 112, 8)
WINDOW, BLOCK, SINKS = range(112, 136, 8)  # BLOCK: all rows see all positions of the call
ROWS_PER_TASK = 136
# words of few rows; PARTIALS: float32 [kv_heads, CHUNKS, n * group, head_dim + PARTIAL_EXTRA]
PARTIALS, CHUNKS, SPLITS, PARENTS = range(144, 176, 8)


def build(name, *spec):
    kernels = {"split": split, "branches": branches, "combine": combine, "rows": rows}
    return kernels[name](*spec)


@inline
def heads_of(args):
    """K/V heads, query heads of each, and their size."""
    return load_i64(args + KV_HEADS), load_i64(args + GROUP), load_i64(args + HEAD_DIM)


@inline
def furthest_of(args):
    """The last position that every row sees: that of a block, else -1."""
    furthest = -1
    if load_i64(args + BLOCK) != 0:
        for row in range(load_i64(args + N)):
            furthest = max(furthest, load_i32(load_i64(args + POSITIONS) + 4 * row))
    return furthest


@inline
def seen_by(args, row, furthest):
    """The first position that a row sees, and the last."""
    position, window = load_i32(load_i64(args + POSITIONS) + 4 * row), load_i64(args + WINDOW)
    first = max(position + 1 - window, 0) if window > 0 else 0
    return first, max(position, furthest)


@inline
def chunks_of(args, first_row, last_row, furthest):
    """The first chunk that one of the rows sees, and the end of them."""
    begin, end = seen_by(args, first_row, furthest)
    for row in range(first_row + 1, last_row):
        first, last = seen_by(args, row, furthest)
        begin, end = min(begin, first), max(end, last)
    return begin // CHUNK, end // CHUNK + 1


@inline
def partial_bytes(args):
    return 4 * (load_i64(args + HEAD_DIM) + PARTIAL_EXTRA)


@inline
def partials_of(args, head):
    """Where the partials of a K/V head lie."""
    queries = load_i64(args + N) * load_i64(args + GROUP)
    each = load_i64(args + CHUNKS) * queries * partial_bytes(args)
    return load_i64(args + PARTIALS) + head * each


@inline
def memory_of(args, head):
    """Where the keys of a K/V head lie, and its values."""
    k = load_i64(args + K) + head * load_i64(args + K_HEAD_BYTES)
    return k, load_i64(args + V) + head * load_i64(args + V_HEAD_BYTES)


@inline
def sink_of(args, head):
    """The address of a query head's sink, 0 if there is none."""
    sinks = load_i64(args + SINKS)
    return sinks + 4 * head if sinks != 0 else 0


def _partials(format_k: str, format_v: str, windowed: bool):
    chunk = chunk_kernel(format_k, format_v, windowed)

    @inline
    def seen_of(args, row, start, furthest):
        """The keys of the chunk that begins at `start` that a row sees, as first and end."""
        first, last = seen_by(args, row, furthest)
        return first - start, last + 1 - start

    @inline
    def partials(args, head, first, last, start, k, v, scores, out, furthest):
        """The chunk at k, v, that begins at position `start`, for queries first..last-1 of a K/V
        head, four at a time.

        Query j is head j % group of row j // group; its partial goes to out + j's place.
        """
        q_stride, (_, group, head_dim) = load_i64(args + Q_STRIDE), heads_of(args)
        size = partial_bytes(args)
        base = load_i64(args + Q) + 4 * head * group * head_dim
        for j in range(first, last, QUERIES):
            j1, j2, j3 = min(j + 1, last - 1), min(j + 2, last - 1), min(j + 3, last - 1)
            f0, n0 = seen_of(args, j // group, start, furthest)
            f1, n1 = seen_of(args, j1 // group, start, furthest)
            f2, n2 = seen_of(args, j2 // group, start, furthest)
            f3, n3 = seen_of(args, j3 // group, start, furthest)
            chunk(
                base + j // group * q_stride + 4 * (j % group) * head_dim,
                base + j1 // group * q_stride + 4 * (j1 % group) * head_dim,
                base + j2 // group * q_stride + 4 * (j2 % group) * head_dim,
                base + j3 // group * q_stride + 4 * (j3 % group) * head_dim,
                f0, f1, f2, f3, n0, n1, n2, n3, k, v, head_dim, load_f32(args + SCALE), scores,
                out + (j - first) * size,
                out + (j1 - first) * size,
                out + (j2 - first) * size,
                out + (j3 - first) * size,
                j == first,
            )  # fmt: skip

    return partials


def split(format_k: str, format_v: str, windowed: bool):
    """Few rows: task = (split, K/V head); a split takes neighbouring chunks.

    Of a tree, only chunks that end before its first position.
    """
    partials = _partials(format_k, format_v, windowed)
    key_at, value_at = places(format_k, format_v)

    def kernel(args, task, scratch):
        n, (kv_heads, group, head_dim) = load_i64(args + N), heads_of(args)
        head, queries = task % kv_heads, n * group
        here, furthest = partials_of(args, head), furthest_of(args)
        begin, end = chunks_of(args, 0, n, furthest)
        if load_i64(args + PARENTS) != 0:
            end = load_i32(load_i64(args + POSITIONS)) // CHUNK
        splits = load_i64(args + SPLITS)
        each = (max(end - begin, 0) + splits - 1) // splits
        first = begin + task // kv_heads * each
        k, v = memory_of(args, head)
        for c in range(first, min(first + each, end)):
            start = c * CHUNK
            out = here + c * queries * partial_bytes(args)
            keys, values = key_at(k, start, head_dim), value_at(v, start, head_dim)
            partials(args, head, 0, queries, start, keys, values, scratch, out, furthest)

    return kernel


def branches(format_k: str, format_v: str, windowed: bool):
    """The chunks that keys of a tree lie in: task = (block of rows, K/V head).

    The keys and values that a row sees are gathered, in the order of their positions: then it is
    an ordinary chunk. Those from before the tree are the same for all rows of a task.
    """
    partials = _partials(format_k, format_v, windowed)
    key_at, _ = places(format_k, format_v)
    shared, path = gather(format_k, format_v)

    def kernel(args, task, scratch):
        n, (kv_heads, group, head_dim) = load_i64(args + N), heads_of(args)
        head, queries = task % kv_heads, n * group
        here = partials_of(args, head)
        k, v = memory_of(args, head)
        keys = scratch + QUERIES * SCORE_BYTES
        values = key_at(keys, CHUNK, head_dim)
        first = task // kv_heads * load_i64(args + ROWS_PER_TASK)
        last = min(first + load_i64(args + ROWS_PER_TASK), n)
        root = load_i32(load_i64(args + POSITIONS))
        for c in range(root // CHUNK, chunks_of(args, first, last, -1)[1]):
            start = c * CHUNK
            before = max(root - start, 0)
            shared(k, v, start, before, head_dim, keys, values)
            for row in range(first, last):
                position = load_i32(load_i64(args + POSITIONS) + 4 * row)
                path(k, v, root, load_i64(args + PARENTS), row, position - start, before, head_dim,
                     keys, values)  # fmt: skip
                if position >= start:
                    out = here + (c * queries + row * group) * partial_bytes(args)
                    partials(args, head, row * group, (row + 1) * group, start, keys, values,
                             scratch, out, -1)  # fmt: skip

    return kernel


def combine():
    """Few rows, last step: task = (row, K/V head)."""

    def kernel(args, task, scratch):
        kv_heads, group, head_dim = heads_of(args)
        size = partial_bytes(args)
        head, row = task % kv_heads, task // kv_heads
        queries = load_i64(args + N) * group
        here = partials_of(args, head)
        begin, end = chunks_of(args, row, row + 1, furthest_of(args))
        out = load_i64(args + OUT) + row * load_i64(args + OUT_STRIDE)
        for g in range(group):
            clear(scratch, head_dim, sink_of(args, head * group + g))
            for c in range(begin, end):
                merge(scratch, here + (c * queries + row * group + g) * size, head_dim)
            write_out(scratch, head_dim, out + 4 * (head * group + g) * head_dim)

    return kernel


def rows(format_k: str, format_v: str, windowed: bool):
    """Many rows: task = (block of rows, K/V head)."""
    partials = _partials(format_k, format_v, windowed)
    key_at, value_at = places(format_k, format_v)

    def kernel(args, task, scratch):
        kv_heads, group, head_dim = heads_of(args)
        size, furthest = partial_bytes(args), furthest_of(args)
        head = task % kv_heads
        first = task // kv_heads * load_i64(args + ROWS_PER_TASK)
        last = min(first + load_i64(args + ROWS_PER_TASK), load_i64(args + N))
        queries = (last - first) * group
        partial = scratch + QUERIES * SCORE_BYTES
        totals = partial + QUERIES * size
        for j in range(queries):
            clear(totals + j * size, head_dim, sink_of(args, head * group + j % group))
        k, v = memory_of(args, head)
        begin, end = chunks_of(args, first, last, furthest)
        for c in range(begin, end):
            start = c * CHUNK
            keys, values = key_at(k, start, head_dim), value_at(v, start, head_dim)
            for j in range(0, queries, QUERIES):
                some = first * group + j
                count = min(QUERIES, queries - j)
                partials(args, head, some, some + count, start, keys, values, scratch,
                         partial, furthest)  # fmt: skip
                for i in range(count):
                    row_begin, row_end = seen_by(args, (some + i) // group, furthest)
                    if row_begin < start + CHUNK and row_end >= start:
                        merge(totals + (j + i) * size, partial + i * size, head_dim)
        for j in range(queries):
            out = load_i64(args + OUT) + (first + j // group) * load_i64(args + OUT_STRIDE)
            write_out(totals + j * size, head_dim, out + 4 * (head * group + j % group) * head_dim)

    return kernel
