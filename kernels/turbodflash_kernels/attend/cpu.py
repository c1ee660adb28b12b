"""Kernels of `attend` for Numba: who computes which chunk for whom.

Chunks go to threads when rows are few, rows to threads when they are many; the chunks of a tree
that its own keys lie in go to rows. All do exactly the arithmetic of _cpu/chunk_kernels.py, in the
same order, so a row's bits do not depend on its company.
"""

from __future__ import annotations

import numba

from turbodflash_kernels._cpu import chunk_words
from turbodflash_kernels._cpu.calls import call11
from turbodflash_kernels._cpu.chunk_words import MOST_QUERIES
from turbodflash_kernels._cpu.gather_kernels import keys_at, path, shared, values_at
from turbodflash_kernels._cpu.kv_words import (
    CHUNK,
    K_HEAD,
    SUM_K,
    V_HEAD,
)
from turbodflash_kernels._cpu.query_kernels import (
    CHUNK_KERNEL,
    DIRECT,
    GROUP,
    HALVED,
    HEAD_DIM,
    KV,
    KV_HEADS,
    PARENTS,
    POSITIONS,
    ROWS_PER_TASK,
    SPLITS,
    TASKS,
    N,
    ask_for,
    block_of,
    bound,
    chunks_of,
    furthest_of,
    heads_of,
    partial_bytes,
    partial_of,
    partials_of,
    result_at,
    sink_of,
    take_queries,
    write_out,
)
from turbodflash_kernels._cpu.simd import (
    load_i32,
    load_i64,
)
from turbodflash_kernels._cpu.softmax_kernels import clear, merge

inline = numba.njit(error_model="numpy")
bounds_bytes, place_of = inline(chunk_words.bounds_bytes), inline(chunk_words.place_of)
queries_of, unit_of = inline(chunk_words.queries_of), inline(chunk_words.unit_of)
units_of = inline(chunk_words.units_of)


def build(name, *spec):
    return {"split": split, "branches": branches, "combine": combine, "rows": rows}[name]


def split(args, task, scratch):
    """Few rows: task = (K/V head, some neighbouring chunks, all queries or half of them).

    Of a tree, only chunks that end before its first position.
    """
    kv, size, furthest = load_i64(args + KV), partial_bytes(args), furthest_of(args)
    chunk, direct = load_i64(args + CHUNK_KERNEL), args + DIRECT
    start, end = chunks_before_tree(args)
    splits, halves, units = units_of(
        end - start, load_i64(args + SPLITS), load_i64(args + HALVED), load_i64(args + KV_HEADS)
    )
    unit = unit_of(task, load_i64(args + TASKS), units)
    if unit < 0:
        return
    head, first, last = place_of(unit // halves, splits, end - start)
    here, then = partials_of(args, head), 0
    if unit + 1 < units:  # mostly what its thread comes to next
        place = place_of((unit + 1) // halves, splits, end - start)
        then = keys_at(kv, start + place[1], place[0])
    begin, end = queries_of(unit, halves, load_i64(args + N) * load_i64(args + GROUP))
    for j in range(begin, end, MOST_QUERIES):
        count = min(MOST_QUERIES, end - j)
        bounds = take_queries(args, head, j, j + count, scratch)
        space = bounds + bounds_bytes(count)
        for c in range(start + first, start + last):
            bound(args, j, j + count, c * CHUNK, furthest, bounds)
            following = keys_at(kv, c + 1, head) if c + 1 < start + last else then
            out = partial_of(args, here, c, j)
            k, v = keys_at(kv, c, head), values_at(kv, c, head)
            call11(chunk, kv, direct, k, v, following, scratch, count, bounds, space, out, size)


@inline
def chunks_before_tree(args):
    """The first chunk that few rows look at, and the end of them."""
    begin, end = chunks_of(args, 0, load_i64(args + N), furthest_of(args))
    if load_i64(args + PARENTS) != 0:
        end = load_i32(load_i64(args + POSITIONS)) // CHUNK
    return begin, max(begin, end)


def branches(args, task, scratch):
    """The chunks that keys of a tree lie in: task = (block of rows, K/V head).

    The keys and values that a row sees are gathered, in the order of their positions: then it is
    an ordinary chunk. Those from before the tree are the same for all rows of a task.
    """
    kv, n, (kv_heads, group, _) = load_i64(args + KV), load_i64(args + N), heads_of(args)
    head, size = task % kv_heads, partial_bytes(args)
    here = partials_of(args, head)
    bounds = scratch + 4 * group * load_i64(kv + SUM_K)
    keys = bounds + bounds_bytes(group)
    values = keys + load_i64(kv + K_HEAD)
    space = values + load_i64(kv + V_HEAD)
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
    n, each = load_i64(args + N), load_i64(args + ROWS_PER_TASK)
    head = task % kv_heads
    first_row = block_of(task // kv_heads, (n - 1) // each + 1) * each
    last_row = min(first_row + each, n)
    begin, end = chunks_of(args, first_row, last_row, furthest)
    chunk, direct = load_i64(args + CHUNK_KERNEL), args + DIRECT
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
                if c == begin:
                    ask_for(result_at(args, head, j + i), 4 * load_i64(args + HEAD_DIM))
        for i in range(count):
            write_out(args, head, j + i, totals + i * size)
