"""One chunk of keys and values for four queries, and how chunks become a result.

The keys are cut at every 128th absolute position. A chunk yields, for a query, the largest score m,
the sum l of exp(score - m) and the vector of exp(score - m) * V: its partial, float32
[head_dim, m, l, padding]. Partials are then merged in order. A query's numbers depend on no other
query, so it does not matter who shares a chunk with it.
"""

from __future__ import annotations

import numba
import numpy as np

from turbodflash_kernels._cpu.kv import CHUNK
from turbodflash_kernels._cpu.simd import (
    load_f32,
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
SCORE_BYTES = 4 * CHUNK  # of one query
LOWEST = np.float32(-np.inf)


@inline
def exp1(x):
    return vmax_of(vexp(vsplat(x)))


@inline
def merge(total, partial, head_dim):
    """total := total joined with a later chunk's partial, of which a key was seen."""
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
def clear(total, head_dim, sink):
    """No keys yet, only the sink's logit; sink: its address, 0 if there is none."""
    for i in range(0, head_dim, 16):
        vstore(total + 4 * i, vsplat(np.float32(0.0)))
    store_f32(total + 4 * head_dim, load_f32(sink) if sink != 0 else LOWEST)
    store_f32(total + 4 * head_dim + 4, np.float32(1.0) if sink != 0 else np.float32(0.0))


@inline
def write_out(total, head_dim, out):
    inverse = np.float32(1.0) / load_f32(total + 4 * head_dim + 4)
    for i in range(0, head_dim, 16):
        vstore(out + 4 * i, vload(total + 4 * i) * vsplat(inverse))


def chunk_kernel(format_k: str, format_v: str, windowed: bool):
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
    def seen_only(score, i, first, count):
        """Sixteen scores from key i on; a query sees keys first..count-1."""
        score = vbelow(count - i, score, vsplat(LOWEST))
        if windowed:
            score = vbelow(first - i, vsplat(LOWEST), score)
        return score

    @inline
    def weigh(scores, begin, seen, partial, head_dim):
        """Scores of one query become weights exp(score - m); m and l go to the partial."""
        highest = vsplat(LOWEST)
        for i in range(begin, seen, 16):
            highest = vmax(highest, vload(scores + 4 * i))
        m = vmax_of(highest)
        total = vsplat(np.float32(0.0))
        if m > LOWEST:
            for i in range(begin, seen, 16):
                weight = vexp(vload(scores + 4 * i) - vsplat(m))
                total = total + weight
                vstore(scores + 4 * i, weight)
        else:
            for i in range(begin, seen, 16):
                vstore(scores + 4 * i, total)
        store_f32(partial + 4 * head_dim, m)
        store_f32(partial + 4 * head_dim + 4, vsum(total))

    @inline
    def chunk(q0, q1, q2, q3, f0, f1, f2, f3, n0, n1, n2, n3, k, v, head_dim, scale, scores,
              p0, p1, p2, p3, fetch):  # fmt: skip
        """Query i sees the keys f_i..n_i-1 of the chunk at k, v (all from the first on, if not
        windowed; none if n_i <= f_i).

        fetch: ask memory for the values while the keys are at work, and for the next chunk's keys
        while the values are: the processor alone overlaps too little of reading and computing.
        """
        s0 = scores
        s1, s2, s3 = s0 + SCORE_BYTES, s0 + 2 * SCORE_BYTES, s0 + 3 * SCORE_BYTES
        seen = min(max(max(n0, n1), max(n2, n3)), CHUNK)
        begin = 0
        if windowed:
            begin = max(min(min(f0, f1), min(f2, f3)), 0) // 16 * 16
        factor = vsplat(scale)
        for i in range(begin, seen, 16):
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
            vstore(s0 + 4 * i, seen_only(a0 * factor, i, f0, n0))
            vstore(s1 + 4 * i, seen_only(a1 * factor, i, f1, n1))
            vstore(s2 + 4 * i, seen_only(a2 * factor, i, f2, n2))
            vstore(s3 + 4 * i, seen_only(a3 * factor, i, f3, n3))
        weigh(s0, begin, seen, p0, head_dim)
        weigh(s1, begin, seen, p1, head_dim)
        weigh(s2, begin, seen, p2, head_dim)
        weigh(s3, begin, seen, p3, head_dim)
        for d in range(0, head_dim, 16):
            a0 = a1 = a2 = a3 = vsplat(np.float32(0.0))
            for i in range(begin, seen):
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

    return chunk
