"""What all kernels of `attend` are told, and what they do with queries and results.

Query j of a K/V head is head j % group of row j // group.
"""

from __future__ import annotations

import numba

from turbodflash_kernels._cpu.calls import call3
from turbodflash_kernels._cpu.chunk_words import bounds_bytes
from turbodflash_kernels._cpu.gather_kernels import copy_bytes
from turbodflash_kernels._cpu.kv_words import (
    CHUNK,
    PARTIAL_EXTRA,
    QUERIES_K,
    SUM_K,
    SUM_V,
    TURN_V,
    WIDTH_K,
)
from turbodflash_kernels._cpu.memory import LINE
from turbodflash_kernels._cpu.simd import (
    load_f32,
    load_i32,
    load_i64,
    prefetch,
    store_i64,
    vload,
    vsplat,
    vstore,
)
from turbodflash_kernels._cpu.softmax_kernels import finish
from turbodflash_kernels._cpu.turn_kernels import turn

inline = numba.njit(error_model="numpy")
bounds_bytes = inline(bounds_bytes)

# words of all kernels; KV: the words of _cpu/kv_words.py
Q, Q_STRIDE, POSITIONS, N, KV, KV_HEADS, GROUP, HEAD_DIM, SCALE = range(0, 72, 8)
OUT, OUT_STRIDE, WINDOW, BLOCK, SINKS = range(72, 112, 8)  # BLOCK: rows see all of the call
CHUNK_KERNEL, ROWS_PER_TASK = 112, 120
# words of few rows; PARTIALS: float32 [kv_heads, CHUNKS, n * group, width_v + PARTIAL_EXTRA], that
# of chunk c at c % CHUNKS
PARTIALS, CHUNKS, SPLITS, PARENTS = range(128, 160, 8)
DIRECT = 160  # two words: kernels of _cpu/direct_kernels.py for the queries of one row, or 0
HALVED = 176  # so many chunks, at most, are computed by two tasks each, for half of the queries
TASKS = 184


@inline
def block_of(place, blocks):
    """Blocks from both ends in turns: the last see most, and neighbours go to the same thread."""
    return place // 2 if place % 2 != 0 else blocks - 1 - place // 2


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
def query_at(args, head, j):
    """Where query j of a K/V head lies."""
    group, stored = load_i64(args + GROUP), load_i64(load_i64(args + KV) + WIDTH_K)
    row, query = j // group, head * group + j % group
    return load_i64(args + Q) + row * load_i64(args + Q_STRIDE) + 4 * query * stored


@inline
def result_at(args, head, j):
    """Where its result goes."""
    group, head_dim = load_i64(args + GROUP), load_i64(args + HEAD_DIM)
    row, query = j // group, head * group + j % group
    return load_i64(args + OUT) + row * load_i64(args + OUT_STRIDE) + 4 * query * head_dim


@inline
def take_queries(args, head, first, last, to):
    """Queries first..last-1 of a K/V head, scaled, one behind the other; returns what follows."""
    kv, start = load_i64(args + KV), to
    width, scale = load_i64(kv + SUM_K), vsplat(load_f32(args + SCALE))
    for j in range(first, last):
        q = query_at(args, head, j)
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
    kv, head_dim = load_i64(args + KV), load_i64(args + HEAD_DIM)
    width, out = load_i64(kv + SUM_V), result_at(args, head, j)
    finish(total, width)
    turn(kv, total, width, load_i64(kv + TURN_V), 1)
    whole = head_dim // 16 * 16
    for i in range(0, whole, 16):
        vstore(out + 4 * i, vload(total + 4 * i))
    copy_bytes(total + 4 * whole, 4 * (head_dim - whole), out + 4 * whole)


@inline
def ask_for(address, size):
    for at in range(address, address + size, LINE):
        prefetch(at)
