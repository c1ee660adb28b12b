"""Scores of a chunk become weights, and partials of chunks a result.

A partial, or a total of several: float32 [width, m, l, padding], the largest score m, the sum l of
exp(score - m) and the vector of exp(score - m) * V.
"""

from __future__ import annotations

import numba
import numpy as np

from turbodflash_kernels._cpu.exponentials import vdecay
from turbodflash_kernels._cpu.simd import (
    load_f32,
    store_f32,
    vbelow,
    vfma,
    vload,
    vmax,
    vmax_of,
    vsplat,
    vstore,
    vsum,
)

inline = numba.njit(error_model="numpy")
LOWEST = np.float32(-np.inf)


@inline
def decay1(x):
    return vmax_of(vdecay(vsplat(x)))


@inline
def merge(total, partial, width):
    """total := total joined with a later chunk's partial, of which a key was seen."""
    end = 4 * width
    m, m_new = load_f32(total + end), load_f32(partial + end)
    less = np.float32(0.0)  # the factor of the lower maximum; that of the higher one is 1
    if m > LOWEST:
        less = decay1(-abs(m - m_new))
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
def find_top(scores, begin, end, first, seen, partial, width):
    """The largest of scores begin..end-1 of one query, which sees keys first..seen-1 of the chunk,
    goes to its partial as m."""
    if first > begin or seen < (end + 15) // 16 * 16:  # keys come by sixteen
        hide(scores, begin, end, first, seen)
    top = vsplat(LOWEST)
    for i in range(begin, end, 16):
        top = vmax(top, vload(scores + 4 * i))
    store_f32(partial + 4 * width, vmax_of(top))


@inline
def weigh(scores, begin, end, partial, width):
    """Scores become weights exp(score - m); their sum goes to the partial as l."""
    m, total = load_f32(partial + 4 * width), vsplat(np.float32(0.0))
    if m > LOWEST:
        for i in range(begin, end, 16):
            weight = vdecay(vload(scores + 4 * i) - vsplat(m))
            total = total + weight
            vstore(scores + 4 * i, weight)
    else:
        for i in range(begin, end, 16):
            vstore(scores + 4 * i, total)
    store_f32(partial + 4 * width + 4, vsum(total))
