"""Kernels of `attend` for Numba.

The keys are cut at every 128th absolute position. A chunk yields, for a query, the largest score m,
the sum l of exp(score - m) and the vector acc of exp(score - m) * V; chunks are then merged in
order. Both ways of sharing out the work (chunks to threads for few rows, rows to threads for many)
do exactly this arithmetic, so a row's bits do not depend on its company.
"""

from __future__ import annotations

import numba
import numpy as np

from turbodflash_kernels._cpu.kv import CHUNK, PARTIAL_EXTRA
from turbodflash_kernels._cpu.simd import (
    load_f32,
    load_i32,
    load_i64,
    prefetch,
    store_f32,
    vbelow,
    vexp,
    vfma,
    vload,
    vload_f16,
    vmax,
    vmax_of,
    vsplat,
    vstore,
    vsum,
)

inline = numba.njit(error_model="numpy")
QUERIES = 4  # queries that share the loads of keys and values
LOWEST = np.float32(-np.inf)


def build(name, *spec):
    return {"split": split, "combine": combine, "rows": rows}[name](*spec)


@inline
def exp1(x):
    return vmax_of(vexp(vsplat(x)))


@inline
def merge(total, partial, head_dim):
    """total := total joined with a later chunk's partial; both [head_dim, m, l]."""
    end = 4 * head_dim
    m, m_new = load_f32(total + end), load_f32(partial + end)
    highest = max(m, m_new)
    keep, take = exp1(m - highest), exp1(m_new - highest)
    store_f32(total + end, highest)
    sums = load_f32(total + end + 4) * keep + load_f32(partial + end + 4) * take
    store_f32(total + end + 4, sums)
    for i in range(0, head_dim, 16):
        old = vload(total + 4 * i) * vsplat(keep)
        vstore(total + 4 * i, vfma(vload(partial + 4 * i), vsplat(take), old))


@inline
def clear(total, head_dim):
    for i in range(0, head_dim, 16):
        vstore(total + 4 * i, vsplat(np.float32(0.0)))
    store_f32(total + 4 * head_dim, LOWEST)
    store_f32(total + 4 * head_dim + 4, np.float32(0.0))


@inline
def write_out(total, head_dim, out):
    inverse = np.float32(1.0) / load_f32(total + 4 * head_dim + 4)
    for i in range(0, head_dim, 16):
        vstore(out + 4 * i, vload(total + 4 * i) * vsplat(inverse))


def _partials(format_k: str, format_v: str):
    """The kernel of one chunk for four queries."""
    wide_k, wide_v = format_k == "f32", format_v == "f32"
    k_size, v_size = (4 if wide_k else 2), (4 if wide_v else 2)

    @inline
    def load_k(at):
        return vload(at) if wide_k else vload_f16(at)

    @inline
    def load_v(at):
        return vload(at) if wide_v else vload_f16(at)

    @inline
    def weigh(scores, seen, partial, head_dim):
        """Scores of one query become weights exp(score - m); m and l go to the partial."""
        highest = vsplat(LOWEST)
        for i in range(0, seen, 16):
            highest = vmax(highest, vload(scores + 4 * i))
        m = vmax_of(highest)
        total = vsplat(np.float32(0.0))
        if m > LOWEST:
            for i in range(0, seen, 16):
                weight = vexp(vload(scores + 4 * i) - vsplat(m))
                total = total + weight
                vstore(scores + 4 * i, weight)
        else:
            for i in range(0, seen, 16):
                vstore(scores + 4 * i, total)
        store_f32(partial + 4 * head_dim, m)
        store_f32(partial + 4 * head_dim + 4, vsum(total))

    @inline
    def chunk(q0, q1, q2, q3, n0, n1, n2, n3, k, v, head_dim, scale, scores, p0, p1, p2, p3, fetch):
        """Query i sees the first n_i keys of the chunk at k, v (none if n_i <= 0).

        fetch: ask memory for the values while the keys are at work, and for the next chunk's keys
        while the values are: the processor alone overlaps too little of reading and computing.
        """
        s0 = scores
        s1, s2, s3 = s0 + 4 * CHUNK, s0 + 8 * CHUNK, s0 + 12 * CHUNK
        seen = min(max(max(n0, n1), max(n2, n3)), CHUNK)
        factor, lowest = vsplat(scale), vsplat(LOWEST)
        for i in range(0, seen, 16):
            keys = k + i * head_dim * k_size
            if fetch:
                for line in range(0, 16 * head_dim * v_size, 64):
                    prefetch(v + i * head_dim * v_size + line)
            a0 = a1 = a2 = a3 = vsplat(np.float32(0.0))
            for d in range(head_dim):
                key = load_k(keys + d * 16 * k_size)
                a0 = vfma(key, vsplat(load_f32(q0 + 4 * d)), a0)
                a1 = vfma(key, vsplat(load_f32(q1 + 4 * d)), a1)
                a2 = vfma(key, vsplat(load_f32(q2 + 4 * d)), a2)
                a3 = vfma(key, vsplat(load_f32(q3 + 4 * d)), a3)
            vstore(s0 + 4 * i, vbelow(n0 - i, a0 * factor, lowest))
            vstore(s1 + 4 * i, vbelow(n1 - i, a1 * factor, lowest))
            vstore(s2 + 4 * i, vbelow(n2 - i, a2 * factor, lowest))
            vstore(s3 + 4 * i, vbelow(n3 - i, a3 * factor, lowest))
        weigh(s0, seen, p0, head_dim)
        weigh(s1, seen, p1, head_dim)
        weigh(s2, seen, p2, head_dim)
        weigh(s3, seen, p3, head_dim)
        for d in range(0, head_dim, 16):
            a0 = a1 = a2 = a3 = vsplat(np.float32(0.0))
            for i in range(seen):
                value = load_v(v + (i * head_dim + d) * v_size)
                if fetch and d == 0:
                    next_keys = k + (CHUNK + i) * head_dim * k_size
                    for line in range(0, head_dim * k_size, 64):
                        prefetch(next_keys + line)
                a0 = vfma(value, vsplat(load_f32(s0 + 4 * i)), a0)
                a1 = vfma(value, vsplat(load_f32(s1 + 4 * i)), a1)
                a2 = vfma(value, vsplat(load_f32(s2 + 4 * i)), a2)
                a3 = vfma(value, vsplat(load_f32(s3 + 4 * i)), a3)
            vstore(p0 + 4 * d, a0)
            vstore(p1 + 4 * d, a1)
            vstore(p2 + 4 * d, a2)
            vstore(p3 + 4 * d, a3)

    @inline
    def partials(args, head, first, last, chunk_index, scores, out):
        """One chunk for queries first..last-1 of a K/V head, four at a time.

        Query j is head j % group of row j // group; its partial goes to out + j's place.
        """
        q_stride, group, head_dim = load_i64(args + 8), load_i64(args + 40), load_i64(args + 48)
        positions, scale = load_i64(args + 16), load_f32(args + 56)
        size = 4 * (head_dim + PARTIAL_EXTRA)
        start = chunk_index * CHUNK
        k = load_i64(args + 64) + head * load_i64(args + 72) + start * head_dim * k_size
        v = load_i64(args + 80) + head * load_i64(args + 88) + start * head_dim * v_size
        base = load_i64(args) + 4 * head * group * head_dim
        for j in range(first, last, QUERIES):
            j1, j2, j3 = min(j + 1, last - 1), min(j + 2, last - 1), min(j + 3, last - 1)
            chunk(
                base + j // group * q_stride + 4 * (j % group) * head_dim,
                base + j1 // group * q_stride + 4 * (j1 % group) * head_dim,
                base + j2 // group * q_stride + 4 * (j2 % group) * head_dim,
                base + j3 // group * q_stride + 4 * (j3 % group) * head_dim,
                load_i32(positions + 4 * (j // group)) + 1 - start,
                load_i32(positions + 4 * (j1 // group)) + 1 - start,
                load_i32(positions + 4 * (j2 // group)) + 1 - start,
                load_i32(positions + 4 * (j3 // group)) + 1 - start,
                k,
                v,
                head_dim,
                scale,
                scores,
                out + (j - first) * size,
                out + (j1 - first) * size,
                out + (j2 - first) * size,
                out + (j3 - first) * size,
                j == first,
            )

    return partials


@inline
def chunks_of(positions, n):
    """Chunks that the last of n rows can see."""
    furthest = 0
    for row in range(n):
        furthest = max(furthest, load_i32(positions + 4 * row))
    return furthest // CHUNK + 1


def split(format_k: str, format_v: str):
    """Few rows: task = (split, K/V head); a split takes neighbouring chunks.

    words: q, q_stride, positions, n, kv_heads, group, head_dim, scale_bits, k, k_head_bytes, v,
    v_head_bytes, out, out_stride, partials, chunks, splits. Partials: [kv_heads, chunks, n * group]
    """
    partials = _partials(format_k, format_v)

    def kernel(args, task, scratch):
        n, kv_heads, group = load_i64(args + 24), load_i64(args + 32), load_i64(args + 40)
        size = 4 * (load_i64(args + 48) + PARTIAL_EXTRA)
        head, queries = task % kv_heads, n * group
        here = load_i64(args + 112) + head * load_i64(args + 120) * queries * size
        chunks, splits = chunks_of(load_i64(args + 16), n), load_i64(args + 128)
        each = (chunks + splits - 1) // splits
        first = task // kv_heads * each
        for c in range(first, min(first + each, chunks)):
            partials(args, head, 0, queries, c, scratch, here + c * queries * size)

    return kernel


def combine():
    """Few rows, second step: task = (row, K/V head); the same words as split."""

    def kernel(args, task, scratch):
        n, kv_heads, group = load_i64(args + 24), load_i64(args + 32), load_i64(args + 40)
        head_dim = load_i64(args + 48)
        size = 4 * (head_dim + PARTIAL_EXTRA)
        head, row = task % kv_heads, task // kv_heads
        queries = n * group
        here = load_i64(args + 112) + head * load_i64(args + 120) * queries * size
        chunks = load_i32(load_i64(args + 16) + 4 * row) // CHUNK + 1
        out = load_i64(args + 96) + row * load_i64(args + 104) + 4 * head * group * head_dim
        for g in range(group):
            clear(scratch, head_dim)
            for c in range(chunks):
                merge(scratch, here + (c * queries + row * group + g) * size, head_dim)
            write_out(scratch, head_dim, out + 4 * g * head_dim)

    return kernel


def rows(format_k: str, format_v: str):
    """Many rows: task = (block of rows_per_task rows, K/V head).

    words: as split up to out_stride, then rows_per_task.
    """
    partials = _partials(format_k, format_v)

    def kernel(args, task, scratch):
        kv_heads, group, head_dim = (
            load_i64(args + 32),
            load_i64(args + 40),
            load_i64(args + 48),
        )
        size = 4 * (head_dim + PARTIAL_EXTRA)
        head = task % kv_heads
        first = task // kv_heads * load_i64(args + 112)
        last = min(first + load_i64(args + 112), load_i64(args + 24))
        queries = (last - first) * group
        scores = scratch
        partial = scores + 16 * CHUNK
        totals = partial + QUERIES * size
        for j in range(queries):
            clear(totals + j * size, head_dim)
        positions = load_i64(args + 16)
        for c in range(chunks_of(positions + 4 * first, last - first)):
            for j in range(0, queries, QUERIES):
                some = min(QUERIES, queries - j)
                partials(
                    args, head, first * group + j, first * group + j + some, c, scores, partial
                )
                for i in range(some):
                    row = first + (j + i) // group
                    if load_i32(positions + 4 * row) >= c * CHUNK:
                        merge(totals + (j + i) * size, partial + i * size, head_dim)
        for j in range(queries):
            out = load_i64(args + 96) + (first + j // group) * load_i64(args + 104)
            write_out(totals + j * size, head_dim, out + 4 * (head * group + j % group) * head_dim)

    return kernel
