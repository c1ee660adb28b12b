"""Kernels of `attend` for Numba: who computes which chunk for whom.

Chunks go to threads when rows are few, rows to threads when they are many; the chunks of a tree
that its own keys lie in go to rows. All do exactly the arithmetic of _cpu/chunk_kernels.py, in the
same order, so a row's bits do not depend on its company. Query j of a K/V head is head j % group of
row j // group.
"""

from __future__ import annotations

import numba

from turbodflash_kernels._cpu.calls import call3, call11
from turbodflash_kernels._cpu.chunk_kernels import clear, finish, merge
from turbodflash_kernels._cpu.chunk_words import MOST_QUERIES, bounds_bytes, space_bytes
from turbodflash_kernels._cpu.gather_kernels import copy_bytes, keys_at, path, shared, values_at
from turbodflash_kernels._cpu.kv_words import (
    CHUNK,
    K_HEAD,
    PARTIAL_EXTRA,
    QUERIES_K,
    SUM_K,
    SUM_V,
    TURN_V,
    WIDTH_K,
)
from turbodflash_kernels._cpu.simd import (
    load_f32,
    load_i32,
    load_i64,
    store_i64,
    vload,
    vsplat,
    vstore,
)
from turbodflash_kernels._cpu.turn_kernels import turn

inline = numba.njit(error_model="numpy")
bounds_bytes, space_bytes = inline(bounds_bytes), inline(space_bytes)

# words of all kernels; KV: the words of _cpu/kv_words.py
Q, Q_STRIDE, POSITIONS, N, KV, KV_HEADS, GROUP, HEAD_DIM, SCALE = range(0, 72, 8)
OUT, OUT_STRIDE, WINDOW, BLOCK, SINKS = range(72, 112, 8)  # BLOCK: rows see all of the call
CHUNK_KERNEL, ROWS_PER_TASK = 112, 120
# words of few rows; PARTIALS: float32 [kv_heads, CHUNKS, n * group, width_v + PARTIAL_EXTRA], that
# of chunk c at c % CHUNKS
PARTIALS, CHUNKS, SPLITS, PARENTS = range(128, 160, 8)
DIRECT = 160  # two words: kernels of _cpu/direct_kernels.py for the queries of one row, or 0
NOTHING = 176  # two words of 0


def build(name, *spec):
    return {"split": split, "branches": branches, "combine": combine, "rows": rows}[name]


@inline
def heads_of(args):
    """K/V heads, query heads of each, and numbers of a value that are summed up."""
    width = load_i64(load_i64(args + KV) + SUM_V)
    return load_i64(args + KV_HEADS), load_i64(args + GROUP), width


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
    return 4 * (load_i64(load_i64(args + KV) + SUM_V) + PARTIAL_EXTRA)


@inline
def partials_of(args, head):
    """Where the partials of a K/V head lie."""
    queries = load_i64(args + N) * load_i64(args + GROUP)
    each = load_i64(args + CHUNKS) * queries * partial_bytes(args)
    return load_i64(args + PARTIALS) + head * each


@inline
def partial_of(args, here, chunk, query):
    """Where the partial of a chunk and a query of a K/V head lies, whose partials begin `here`."""
    queries = load_i64(args + N) * load_i64(args + GROUP)
    place = chunk % load_i64(args + CHUNKS)
    return here + (place * queries + query) * partial_bytes(args)


@inline
def sink_of(args, head):
    """The address of a query head's sink, 0 if there is none."""
    sinks = load_i64(args + SINKS)
    return sinks + 4 * head if sinks != 0 else 0


@inline
def take_queries(args, head, first, last, to):
    """Queries first..last-1 of a K/V head, scaled, one behind the other; returns what follows."""
    kv, group, start = load_i64(args + KV), load_i64(args + GROUP), to
    stored, width = load_i64(kv + WIDTH_K), load_i64(kv + SUM_K)
    scale = vsplat(load_f32(args + SCALE))
    for j in range(first, last):
        row, query = j // group, head * group + j % group
        q = load_i64(args + Q) + row * load_i64(args + Q_STRIDE) + 4 * query * stored
        for i in range(0, width, 16):
            vstore(to + 4 * i, vload(q + 4 * i) * scale)
        to += 4 * width
    if load_i64(kv + QUERIES_K) != 0:
        call3(load_i64(kv + QUERIES_K), start, last - first, width)
    return to


@inline
def bound(args, first, last, start, furthest, bounds):
    """What queries first..last-1 see of the chunk that begins at position `start`."""
    group = load_i64(args + GROUP)
    for j in range(first, last):
        begin, end = seen_by(args, j // group, furthest)
        store_i64(bounds, begin - start)
        store_i64(bounds + 8, end + 1 - start)
        bounds += 16


@inline
def write_out(args, head, j, total):
    """A total becomes query j's result."""
    kv, (_, group, width) = load_i64(args + KV), heads_of(args)
    head_dim = load_i64(args + HEAD_DIM)
    finish(total, width)
    turn(kv, total, width, load_i64(kv + TURN_V), 1)
    out = load_i64(args + OUT) + j // group * load_i64(args + OUT_STRIDE)
    copy_bytes(total, 4 * head_dim, out + 4 * (head * group + j % group) * head_dim)


def split(args, task, scratch):
    """Few rows: task = (split, K/V head); a split takes neighbouring chunks.

    Of a tree, only chunks that end before its first position.
    """
    kv, n, (kv_heads, group, _) = load_i64(args + KV), load_i64(args + N), heads_of(args)
    head, queries, size = task % kv_heads, n * group, partial_bytes(args)
    here, furthest = partials_of(args, head), furthest_of(args)
    begin, end = chunks_of(args, 0, n, furthest)
    if load_i64(args + PARENTS) != 0:
        end = load_i32(load_i64(args + POSITIONS)) // CHUNK
    splits = load_i64(args + SPLITS)
    each = (max(end - begin, 0) + splits - 1) // splits
    first = begin + task // kv_heads * each
    last = min(first + each, end)
    chunk, direct = load_i64(args + CHUNK_KERNEL), args + (DIRECT if n == 1 else NOTHING)
    for j in range(0, queries, MOST_QUERIES):
        count = min(MOST_QUERIES, queries - j)
        bounds = take_queries(args, head, j, j + count, scratch)
        space = bounds + bounds_bytes(count)
        for c in range(first, last):
            bound(args, j, j + count, c * CHUNK, furthest, bounds)
            following = keys_at(kv, c + 1, head) if c + 1 < last else 0
            out = partial_of(args, here, c, j)
            k, v = keys_at(kv, c, head), values_at(kv, c, head)
            call11(chunk, kv, direct, k, v, following, scratch, count, bounds, space, out, size)


def branches(args, task, scratch):
    """The chunks that keys of a tree lie in: task = (block of rows, K/V head).

    The keys and values that a row sees are gathered, in the order of their positions: then it is
    an ordinary chunk. Those from before the tree are the same for all rows of a task.
    """
    kv, n, (kv_heads, group, width) = load_i64(args + KV), load_i64(args + N), heads_of(args)
    head, size = task % kv_heads, partial_bytes(args)
    here = partials_of(args, head)
    bounds = scratch + 4 * group * load_i64(kv + SUM_K)
    space = bounds + bounds_bytes(group)
    keys = space + space_bytes(group, load_i64(kv + SUM_K), width)
    values = keys + load_i64(kv + K_HEAD)
    first = task // kv_heads * load_i64(args + ROWS_PER_TASK)
    last = min(first + load_i64(args + ROWS_PER_TASK), n)
    chunk, direct = load_i64(args + CHUNK_KERNEL), args + DIRECT
    root, parents = load_i32(load_i64(args + POSITIONS)), load_i64(args + PARENTS)
    for c in range(root // CHUNK, chunks_of(args, first, last, -1)[1]):
        start = c * CHUNK
        before = max(root - start, 0)
        shared(kv, keys_at(kv, c, head), values_at(kv, c, head), before, keys, values)
        for row in range(first, last):
            position = load_i32(load_i64(args + POSITIONS) + 4 * row)
            path(kv, head, root, parents, row, position - start, before, keys, values)
            if position >= start:
                j = row * group
                take_queries(args, head, j, j + group, scratch)
                bound(args, j, j + group, start, -1, bounds)
                out = partial_of(args, here, c, j)
                call11(chunk, kv, direct, keys, values, 0, scratch, group, bounds, space, out, size)


def combine(args, task, scratch):
    """Few rows, last step: task = (row, K/V head)."""
    kv_heads, group, width = heads_of(args)
    head, row = task % kv_heads, task // kv_heads
    here = partials_of(args, head)
    begin, end = chunks_of(args, row, row + 1, furthest_of(args))
    for j in range(row * group, (row + 1) * group):
        clear(scratch, width, sink_of(args, head * group + j % group))
        for c in range(begin, end):
            merge(scratch, partial_of(args, here, c, j), width)
        write_out(args, head, j, scratch)


def rows(args, task, scratch):
    """Many rows: task = (block of rows, K/V head)."""
    kv, (kv_heads, group, width) = load_i64(args + KV), heads_of(args)
    size, furthest = partial_bytes(args), furthest_of(args)
    head = task % kv_heads
    first_row = task // kv_heads * load_i64(args + ROWS_PER_TASK)
    last_row = min(first_row + load_i64(args + ROWS_PER_TASK), load_i64(args + N))
    begin, end = chunks_of(args, first_row, last_row, furthest)
    chunk, direct = load_i64(args + CHUNK_KERNEL), args + NOTHING
    for j in range(first_row * group, last_row * group, MOST_QUERIES):
        count = min(MOST_QUERIES, last_row * group - j)
        bounds = take_queries(args, head, j, j + count, scratch)
        partials = bounds + bounds_bytes(count)
        totals = partials + count * size
        space = totals + count * size
        for i in range(count):
            clear(totals + i * size, width, sink_of(args, head * group + (j + i) % group))
        for c in range(begin, end):
            bound(args, j, j + count, c * CHUNK, furthest, bounds)
            following = keys_at(kv, c + 1, head) if c + 1 < end else 0
            k, v = keys_at(kv, c, head), values_at(kv, c, head)
            call11(
                chunk, kv, direct, k, v, following, scratch, count, bounds, space, partials, size
            )
            for i in range(count):
                seen_first, seen = load_i64(bounds + 16 * i), load_i64(bounds + 16 * i + 8)
                if seen_first < CHUNK and seen > 0:
                    merge(totals + i * size, partials + i * size, width)
        for i in range(count):
            write_out(args, head, j + i, totals + i * size)
