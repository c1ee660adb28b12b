"""One chunk of keys and values for the queries of a task, and how chunks become a result.

The keys are cut at every 128th absolute position. A chunk yields, for a query, the largest score m,
the sum l of exp(score - m) and the vector of exp(score - m) * V: its partial, float32
[width_v, m, l, padding]. Partials are then merged in order. A query's numbers depend on no other
query, so it does not matter who shares a chunk with it.

Keys and values are decoded a slab of 32 at a time into the thread's memory, once for all queries.
"""

from __future__ import annotations

import numba
import numpy as np

from turbodflash_kernels._cpu.calls import call3, call5, call7, call9, call11
from turbodflash_kernels._cpu.chunk_words import SCORE_BYTES, SLAB, WHOLE_BYTES
from turbodflash_kernels._cpu.kv_words import (
    CHUNK,
    DECODE_K,
    DECODE_V,
    K_TILE,
    PIECES_K,
    PIECES_V,
    SCORES_K,
    SUM_K,
    SUM_V,
    SUMS_V,
    V_ROW,
    WEIGHTS_V,
)
from turbodflash_kernels._cpu.memory import LINE
from turbodflash_kernels._cpu.products import products
from turbodflash_kernels._cpu.simd import (
    load_f32,
    load_i64,
    prefetch,
    store_f32,
    vbelow,
    vdecay,
    vfma,
    vload,
    vmax,
    vmax_of,
    vsplat,
    vstore,
    vsum,
)

inline = numba.njit(error_model="numpy")
QUERIES = 4  # queries that share the loads of keys and values
LOWEST = np.float32(-np.inf)

scores_of_4, scores_of_3 = products(4, 1, True), products(3, 2, True)
scores_of_2, scores_of_1 = products(2, 2, True), products(1, 2, True)
sums_of_4, sums_of_3, sums_of_3_narrow = (
    products(4, 1, False),
    products(3, 2, False),
    products(3, 1, False),
)
sums_of_2, sums_of_1 = products(2, 1, False), products(1, 1, False)


@inline
def decay1(x):
    return vmax_of(vdecay(vsplat(x)))


@inline
def merge(total, partial, width):
    """total := total joined with a later chunk's partial, of which a key was seen."""
    end = 4 * width
    m, m_new = load_f32(total + end), load_f32(partial + end)
    less = decay1(-abs(m - m_new))  # exp of the lower maximum; that of the higher one is 1
    keep, take = (np.float32(1.0), less) if m > m_new else (less, np.float32(1.0))
    store_f32(total + end, max(m, m_new))
    sums = load_f32(total + end + 4) * keep + load_f32(partial + end + 4) * take
    store_f32(total + end + 4, sums)
    for i in range(0, width, 16):
        old = vload(total + 4 * i) * vsplat(keep)
        vstore(total + 4 * i, vfma(vload(partial + 4 * i), vsplat(take), old))


@inline
def clear(total, width, sink):
    """No keys yet, only the sink's logit; sink: its address, 0 if there is none."""
    for i in range(0, width, 16):
        vstore(total + 4 * i, vsplat(np.float32(0.0)))
    store_f32(total + 4 * width, load_f32(sink) if sink != 0 else LOWEST)
    store_f32(total + 4 * width + 4, np.float32(1.0) if sink != 0 else np.float32(0.0))


@inline
def finish(total, width):
    """The vector of a total, divided by its sum."""
    inverse = np.float32(1.0) / load_f32(total + 4 * width + 4)
    for i in range(0, width, 16):
        vstore(total + 4 * i, vload(total + 4 * i) * vsplat(inverse))


@inline
def hide(scores, begin, end, first, seen):
    """Scores of keys that the query does not see are the lowest."""
    for i in range(begin, end, 16):
        score = vbelow(seen - i, vload(scores + 4 * i), vsplat(LOWEST))
        vstore(scores + 4 * i, vbelow(first - i, vsplat(LOWEST), score))


@inline
def weigh(scores, begin, end, first, seen, partial, width):
    """Scores begin..end-1 of one query, which sees keys first..seen-1 of the chunk, become weights
    exp(score - m); m and l go to its partial."""
    highest = vsplat(LOWEST)
    if first > begin or seen < (end + 15) // 16 * 16:  # keys come by sixteen
        hide(scores, begin, end, first, seen)
    for i in range(begin, end, 16):
        highest = vmax(highest, vload(scores + 4 * i))
    m = vmax_of(highest)
    total = vsplat(np.float32(0.0))
    if m > LOWEST:
        for i in range(begin, end, 16):
            weight = vdecay(vload(scores + 4 * i) - vsplat(m))
            total = total + weight
            vstore(scores + 4 * i, weight)
    else:
        for i in range(begin, end, 16):
            vstore(scores + 4 * i, total)
    store_f32(partial + 4 * width, m)
    store_f32(partial + 4 * width + 4, vsum(total))


@inline
def score_slab(queries, count, keys, width, scores):
    """Scores of a slab of keys, f32 [2, width, 16], for one to four queries."""
    q_bytes, apart = 4 * width, 64 * width
    if count >= 4:
        scores_of_4(queries, q_bytes, width, keys, 64, 0, scores, SCORE_BYTES)
        scores_of_4(queries, q_bytes, width, keys + apart, 64, 0, scores + 64, SCORE_BYTES)
    elif count == 3:
        scores_of_3(queries, q_bytes, width, keys, 64, apart, scores, SCORE_BYTES)
    elif count == 2:
        scores_of_2(queries, q_bytes, width, keys, 64, apart, scores, SCORE_BYTES)
    else:
        scores_of_1(queries, q_bytes, width, keys, 64, apart, scores, SCORE_BYTES)


@inline
def sum_slab(weights, count, rows, values, width, out, out_bytes):
    """Weighted sums of the first `rows` values of a slab, f32 [32, width], for one to four queries,
    added to what out holds."""
    v_bytes = 4 * width
    if count == 3:
        pairs = width // 32 * 32
        for d in range(0, pairs, 32):
            sums_of_3(weights, SCORE_BYTES, rows, values + 4 * d, v_bytes, 64, out + 4 * d,
                      out_bytes)  # fmt: skip
        if pairs < width:
            sums_of_3_narrow(weights, SCORE_BYTES, rows, values + 4 * pairs, v_bytes, 0,
                             out + 4 * pairs, out_bytes)  # fmt: skip
        return
    for d in range(0, width, 16):
        value, to = values + 4 * d, out + 4 * d
        if count >= 4:
            sums_of_4(weights, SCORE_BYTES, rows, value, v_bytes, 0, to, out_bytes)
        elif count == 2:
            sums_of_2(weights, SCORE_BYTES, rows, value, v_bytes, 0, to, out_bytes)
        else:
            sums_of_1(weights, SCORE_BYTES, rows, value, v_bytes, 0, to, out_bytes)


@inline
def ask_for(address, nbytes, j, count):
    """Ask memory ahead for the share of these bytes that goes with queries j.. of so many."""
    first, last = nbytes * j // count, nbytes * min(j + QUERIES, count) // count
    for at in range(first // LINE * LINE, last, LINE):
        prefetch(address + at)


@inline
def whole_sums(kv, scores, count, begin, end, v, values, partials, size, later, wanted):
    """Weighted sums of the values begin..end-1 of a chunk at v, in whole numbers.

    scores: weights; behind them is room for values' scales, weights as whole numbers, and factors.
    """
    row, work = load_i64(kv + V_ROW), scores + SCORE_BYTES * count
    whole = work + SCORE_BYTES
    factors = whole + WHOLE_BYTES * count
    call9(load_i64(kv + WEIGHTS_V), scores, count, begin, end, v, row, whole, factors, work)
    call11(load_i64(kv + SUMS_V), whole + 2 * begin, count, v + begin * row + 2, row,
           (end - begin + 1) // 2, partials, size, factors, values, later, wanted)  # fmt: skip


def build(name):
    return {"chunk": chunk}[name]


def chunk(kv, direct, k, v, next_k, queries, count, bounds, space, partials, size):
    """The partials of one chunk, at k and v, for `count` queries f32 [count, width_k], scaled.

    bounds: int64 [count, 2], the keys of the chunk that each query sees: first..seen-1, none if
    seen <= first. partials: `size` bytes apart. space: memory of the thread, see `space_bytes`.
    direct: two words, kernels of direct_kernels for just so many queries, or 0.
    next_k: where the next chunk's keys lie, 0 if nobody will want them. Memory is asked for values
    while keys are at work, and for the next keys while values are: the processor alone overlaps too
    little of reading and computing.
    """
    width_k, width_v = load_i64(kv + SUM_K), load_i64(kv + SUM_V)
    tile, row = load_i64(kv + K_TILE), load_i64(kv + V_ROW)
    scores_of, sums_of = load_i64(direct), load_i64(direct + 8)
    keys = space
    values = keys + 64 * 2 * width_k
    scores = values + 4 * SLAB * width_v
    begin, end = CHUNK, 0
    for j in range(count):
        begin = min(begin, load_i64(bounds + 16 * j))
        end = max(end, load_i64(bounds + 16 * j + 8))
    begin, end = max(begin, 0) // SLAB * SLAB, min(end, CHUNK)
    for i in range(begin, end, SLAB):
        at = k + i // 16 * tile
        if load_i64(kv + SCORES_K) != 0:
            call9(load_i64(kv + SCORES_K), queries, 4 * width_k, count, at, tile, keys,
                  scores + 4 * i, v + i * row, SLAB * row)  # fmt: skip
            continue
        if scores_of != 0:
            pieces = load_i64(kv + PIECES_K)
            call7(scores_of, queries, at, tile, pieces, scores + 4 * i, v + i * row, SLAB * row)
            continue
        call3(load_i64(kv + DECODE_K), at, load_i64(kv + PIECES_K), keys)
        call3(load_i64(kv + DECODE_K), at + tile, load_i64(kv + PIECES_K), keys + 64 * width_k)
        for j in range(0, count, QUERIES):
            ask_for(v + i * row, SLAB * row, j, count)
            if seen_by_any(bounds + 16 * j, min(QUERIES, count - j)) > i:
                score_slab(queries + 4 * width_k * j, count - j, keys, width_k,
                           scores + SCORE_BYTES * j + 4 * i)  # fmt: skip
    for j in range(count):
        first, seen = load_i64(bounds + 16 * j), load_i64(bounds + 16 * j + 8)
        clear(partials + size * j, width_v, 0)
        weigh(scores + SCORE_BYTES * j, begin, end, first, seen, partials + size * j, width_v)
    if load_i64(kv + SUMS_V) != 0:
        if begin < end:
            later, wanted = next_k + begin // 16 * tile, (end - begin + 15) // 16 * tile
            if next_k == 0:
                later, wanted = v, 0
            whole_sums(kv, scores, count, begin, end, v, values, partials, size, later, wanted)
        return
    for i in range(begin, end, SLAB):
        rows = min(end - i, SLAB)
        later, wanted = next_k + i // 16 * tile, 2 * tile
        if next_k == 0:
            later, wanted = v, 0
        if sums_of != 0:
            pieces = load_i64(kv + PIECES_V)
            call9(sums_of, scores + 4 * i, v + i * row, row, rows, pieces, partials, size, later,
                  wanted)  # fmt: skip
            continue
        call5(load_i64(kv + DECODE_V), v + i * row, row, rows, load_i64(kv + PIECES_V), values)
        for j in range(0, count, QUERIES):
            ask_for(later, wanted, j, count)
            seen = min(seen_by_any(bounds + 16 * j, min(QUERIES, count - j)), CHUNK) - i
            if seen > 0:
                sum_slab(scores + SCORE_BYTES * j + 4 * i, count - j, min(seen, rows), values,
                         width_v, partials + size * j, size)  # fmt: skip


@inline
def seen_by_any(bounds, count):
    """The end of what the queries see of the chunk."""
    seen = load_i64(bounds + 8)
    for j in range(1, count):
        seen = max(seen, load_i64(bounds + 16 * j + 8))
    return seen
