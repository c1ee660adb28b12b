"""One chunk of keys and values for the queries of a task, and how chunks become a result.

The keys are cut at every 128th absolute position. A chunk yields, for a query, the largest score m,
the sum l of exp(score - m) and the vector of exp(score - m) * V: its partial, float32
[width_v, m, l, padding]. Partials are then merged in order. A query's numbers depend on no other
query, so it does not matter who shares a chunk with it.

Keys are decoded a slab of 32 at a time into the thread's memory, once for all queries; of values,
some numbers of all, so that a sum over the chunk stays in registers.
"""

from __future__ import annotations

import numba
import numpy as np

from turbodflash_kernels._cpu.calls import call3, call5, call7, call9, call11
from turbodflash_kernels._cpu.chunk_words import (
    PANEL,
    QUERIES,
    SCORE_BYTES,
    SLAB,
    WHOLE_BYTES,
    ZERO_BYTES,
    decoded_bytes,
    ends_bytes,
)
from turbodflash_kernels._cpu.kv_words import (
    CHUNK,
    DECODE_K,
    DECODE_V,
    K_HEAD,
    K_TILE,
    PANEL_BYTES,
    PANEL_V,
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
from turbodflash_kernels._cpu.products import products, vectors_fill_registers
from turbodflash_kernels._cpu.simd import (
    load_i64,
    prefetch,
    store_i64,
    vsplat,
    vstore,
)
from turbodflash_kernels._cpu.softmax_kernels import find_top, weigh

EARLY = 32  # values of a chunk that are asked for while those of the one before are summed up

inline = numba.njit(error_model="numpy")
decoded_bytes, ends_bytes = inline(decoded_bytes), inline(ends_bytes)

# of up to three queries, two vectors at once; where vectors fill registers, of all
one_wide, two_wide, all_wide = products(QUERIES, 1), products(3, 2), products(QUERIES, 2)


@inline
def sum_panel(weights, count, rows, values, numbers, start, start_stride, out, out_stride):
    """Weighted sums of the first `rows` values of a panel, f32 [.., numbers], for one to six
    queries."""
    step, end = 4 * numbers, values + 4 * numbers
    if vectors_fill_registers():
        while values + 128 <= end:
            all_wide(count, weights, SCORE_BYTES, rows, values, step, 64, start, start_stride, out,
                     out_stride)  # fmt: skip
            values, start, out = values + 128, start + 128, out + 128
    elif count <= 3:
        while values + 128 <= end:
            two_wide(count, weights, SCORE_BYTES, rows, values, step, 64, start, start_stride, out,
                     out_stride)  # fmt: skip
            values, start, out = values + 128, start + 128, out + 128
    while values < end:
        one_wide(count, weights, SCORE_BYTES, rows, values, step, 0, start, start_stride, out,
                 out_stride)  # fmt: skip
        values, start, out = values + 64, start + 64, out + 64


@inline
def ask(asked, until):
    """Ask memory ahead for what lies from `asked` on; returns where to go on."""
    while asked < until:
        prefetch(asked)
        asked += LINE
    return asked


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
    width_v = load_i64(kv + SUM_V)
    zeros, ends = space, space + ZERO_BYTES
    decoded = ends + ends_bytes(count)
    scores = decoded + decoded_bytes(load_i64(kv + SUM_K))
    for i in range(0, ZERO_BYTES, 64):
        vstore(zeros + i, vsplat(np.float32(0.0)))
    begin, end = seen_of_all(bounds, count, ends)
    if load_i64(kv + SCORES_K) != 0:
        wholes = load_i64(kv + SUMS_V) != 0 and load_i64(kv + PIECES_V) > 1
        early = EARLY if wholes or load_i64(direct + 8) != 0 else 0
        score_whole(kv, k, v, queries, count, begin, end, decoded, scores, early)
    elif load_i64(direct) != 0:
        score_direct(kv, load_i64(direct), k, v, queries, begin, end, scores)
    else:
        asked = v + begin * load_i64(kv + V_ROW)
        for i in range(begin, end, SLAB):
            asked = score_slab(kv, k, v, i, queries, count, ends, zeros, decoded, scores, asked)
    for j in range(count):
        first, seen = load_i64(bounds + 16 * j), load_i64(bounds + 16 * j + 8)
        find_top(scores + SCORE_BYTES * j, begin, end, first, seen, partials + size * j, width_v)
    for j in range(count):
        weigh(scores + SCORE_BYTES * j, begin, end, partials + size * j, width_v)
    if load_i64(kv + SUMS_V) != 0:
        sum_whole(kv, k, v, next_k, count, begin, end, decoded, scores, partials, size)
    elif load_i64(direct + 8) != 0:
        sum_direct(kv, load_i64(direct + 8), k, v, next_k, count, begin, end, scores, partials,
                   size)  # fmt: skip
    else:
        sum_chunk(kv, v, next_k, count, ends, begin, end, zeros, decoded, scores, partials, size)


@inline
def seen_of_all(bounds, count, ends):
    """What queries see of the chunk, from a slab's beginning on; the end of what each group of
    queries sees goes to `ends`."""
    begin, end = CHUNK, 0
    for j in range(0, count, QUERIES):
        last = 0
        for i in range(j, min(j + QUERIES, count)):
            begin = min(begin, load_i64(bounds + 16 * i))
            last = max(last, load_i64(bounds + 16 * i + 8))
        store_i64(ends + j // QUERIES * 8, min(last, CHUNK))
        end = max(end, last)
    return max(begin, 0) // SLAB * SLAB, min(end, CHUNK)


@inline
def score_whole(kv, k, v, queries, count, begin, end, keys, scores, early):
    """Scores of whole numbers, see integer_kernels. early: so many values were asked for before."""
    tile, row = load_i64(kv + K_TILE), load_i64(kv + V_ROW)
    share = SLAB * (CHUNK - early) // CHUNK
    for i in range(begin, end, SLAB):
        later = v + (early + i // SLAB * share) * row
        call9(load_i64(kv + SCORES_K), queries, 4 * load_i64(kv + SUM_K), count,
              k + i // 16 * tile, tile, keys, scores + 4 * i, later, share * row)  # fmt: skip


@inline
def score_direct(kv, kernel, k, v, queries, begin, end, scores):
    tile, row, pieces = load_i64(kv + K_TILE), load_i64(kv + V_ROW), load_i64(kv + PIECES_K)
    for i in range(begin, end, SLAB):
        call7(kernel, queries, k + i // 16 * tile, tile, pieces, scores + 4 * i, v + i * row,
              SLAB * row)  # fmt: skip


@inline
def score_slab(kv, k, v, i, queries, count, ends, zeros, keys, scores, asked):
    """Scores of the slab of keys from i on. Memory was asked for values up to `asked`; returns
    where to go on."""
    width, tile, row = load_i64(kv + SUM_K), load_i64(kv + K_TILE), load_i64(kv + V_ROW)
    decode, pieces = load_i64(kv + DECODE_K), load_i64(kv + PIECES_K)
    at, q_bytes, apart = k + i // 16 * tile, 4 * width, 64 * width
    call3(decode, at, pieces, keys)
    call3(decode, at + tile, pieces, keys + apart)
    share = 16 * row * min(QUERIES, count) // count
    if vectors_fill_registers():
        query, out, group = queries, scores + 4 * i, ends
        for j in range(0, count, QUERIES):
            asked = ask(asked, v + i * row + 2 * share * (j // QUERIES + 1))
            if load_i64(group) > i:
                all_wide(count - j, query, q_bytes, width, keys, 64, apart, zeros, 0, out,
                         SCORE_BYTES)  # fmt: skip
            query, out, group = query + QUERIES * q_bytes, out + QUERIES * SCORE_BYTES, group + 8
        return asked
    single = count // QUERIES * QUERIES  # queries that meet one tile after the other
    if count - single > 3:
        single = count
    for t in range(2):
        key, until = i + 16 * t, v + (i + 16 * t) * row
        query, out, group = queries, scores + 4 * key, ends
        for j in range(0, single, QUERIES):
            until += share
            asked = ask(asked, until)
            if load_i64(group) > key:
                one_wide(count - j, query, q_bytes, width, keys + apart * t, 64, 0, zeros, 0, out,
                         SCORE_BYTES)  # fmt: skip
            query, out, group = query + QUERIES * q_bytes, out + QUERIES * SCORE_BYTES, group + 8
    if single < count:
        asked = ask(asked, v + (i + SLAB) * row)
        if load_i64(ends + single // QUERIES * 8) > i:
            two_wide(count - single, queries + q_bytes * single, q_bytes, width, keys, 64, apart,
                     zeros, 0, scores + SCORE_BYTES * single + 4 * i, SCORE_BYTES)  # fmt: skip
    return asked


@inline
def sum_whole(kv, k, v, next_k, count, begin, end, values, weights, partials, size):
    """Weighted sums of whole numbers, piece by piece. Behind the weights is room for values'
    scales, weights as whole numbers, and factors. The next keys are asked for, and where they are
    whole numbers, too, which are sooner scored, the first of the next values."""
    if begin >= end:
        return
    row, pieces = load_i64(kv + V_ROW), load_i64(kv + PIECES_V)
    piece_bytes, numbers = row // pieces, load_i64(kv + SUM_V) // pieces
    half = (pieces + 1) // 2 if load_i64(kv + SCORES_K) != 0 else pieces
    work = weights + SCORE_BYTES * count
    whole = work + SCORE_BYTES
    factors = whole + WHOLE_BYTES * count
    at, out, later, wanted = v, partials, next_k, load_i64(kv + K_HEAD) // half
    for piece in range(pieces):
        if piece == half:
            later, wanted = next_k + v - k, EARLY * row // (pieces - half)
        if next_k == 0:
            later, wanted = v, 0
        call9(load_i64(kv + WEIGHTS_V), weights, count, begin, end, at, row, whole, factors, work)
        call11(load_i64(kv + SUMS_V), whole + 2 * begin, count, at + begin * row + 2, row,
               end - begin, out, size, factors, values, later, wanted)  # fmt: skip
        at, out, later = at + piece_bytes, out + 4 * numbers, later + wanted


@inline
def sum_direct(kv, kernel, k, v, next_k, count, begin, end, weights, partials, size):
    """Where keys were whole numbers, which are sooner scored than values are summed up, the first
    of the next values are asked for, too, behind the next keys."""
    width, tile, row = load_i64(kv + SUM_V), load_i64(kv + K_TILE), load_i64(kv + V_ROW)
    keys_end = CHUNK - SLAB if load_i64(kv + SCORES_K) != 0 else CHUNK
    share = CHUNK // 16 * tile * SLAB // keys_end
    for j in range(count):
        for i in range(0, width, 16):
            vstore(partials + size * j + 4 * i, vsplat(np.float32(0.0)))
    for i in range(begin, end, SLAB):
        later, wanted = next_k + i // SLAB * share, share
        if i >= keys_end:
            later, wanted = next_k + v - k, EARLY * row
        if next_k == 0:
            later, wanted = v, 0
        call9(kernel, weights + 4 * i, v + i * row, row, min(end - i, SLAB),
              load_i64(kv + PIECES_V), partials, size, later, wanted)  # fmt: skip


@inline
def sum_chunk(kv, v, next_k, count, ends, begin, end, zeros, values, weights, partials, size):
    """Sums of values, a panel of them after the other: some numbers of as many values as fit."""
    width, row, pieces = load_i64(kv + SUM_V), load_i64(kv + V_ROW), load_i64(kv + PIECES_V)
    panel, panel_bytes = load_i64(kv + PANEL_V), load_i64(kv + PANEL_BYTES)
    asked, until = next_k, next_k
    wanted = load_i64(kv + K_HEAD) * min(QUERIES, count) // (CHUNK * count) if next_k != 0 else 0
    for d in range(0, width, panel):
        numbers, at = min(panel, width - d), v + d // panel * panel_bytes
        for i in range(begin, end, PANEL // panel):
            rows = min(end - i, PANEL // panel)
            call5(load_i64(kv + DECODE_V), at + i * row, row, rows, pieces * numbers // width,
                  values)  # fmt: skip
            share = wanted * rows * numbers // width
            for j in range(0, count, QUERIES):
                until += share
                asked = ask(asked, until)
                seen = min(load_i64(ends + j // QUERIES * 8) - i, rows)
                if seen > 0:
                    out = partials + size * j + 4 * d
                    start, start_stride = (zeros, 0) if i == begin else (out, size)
                    sum_panel(weights + SCORE_BYTES * j + 4 * i, count - j, seen, values, numbers,
                              start, start_stride, out, size)  # fmt: skip
