"""Attention of a few rows to tiles of keys, as kernels share it.

Rows stand in tiles of 16: row r of a call is query head r % GROUP of its token r // GROUP. What has
been seen so far of a tile of rows is its state: the highest score, in logarithms to the base 2; the
sum of weights relative to it; the sum of weighted values, plane by plane. A tile of keys that a row
sees nothing of leaves its state as it was, bit by bit, so states do not depend on how many rows are
computed together, and may be put down and taken up again.
"""

from __future__ import annotations

# ruff: noqa: RUF005 - Triton knows no starred tuples
import triton
import triton.language as tl

from turbodflash_kernels._gpu.constants import has_norm, plane_of, planes_of

NOTHING = tl.constexpr(-1e30)  # the highest of no scores; infinity would make NaN of differences


@triton.jit
def load_queries(
    q, q_stride, head, first, end, scale, GROUP: tl.constexpr, ROWS: tl.constexpr,
    TILES: tl.constexpr, KIND: tl.constexpr, DIM: tl.constexpr,
):  # fmt: skip
    """Rows first..end-1 for a K/V head, times scale: tiles of planes [ROWS, plane], flat.

    In the precision that keys of this type are multiplied in.
    """
    PLANE: tl.constexpr = plane_of(KIND, DIM)
    queries = ()
    for t in tl.static_range(TILES):
        row = first + t * ROWS + tl.arange(0, ROWS)
        at = (row // GROUP).to(tl.int64) * q_stride + (head * GROUP + row % GROUP) * DIM
        for p in tl.static_range(planes_of(KIND, DIM)):
            column = p * PLANE + tl.arange(0, PLANE)
            x = tl.load(q + at[:, None] + column[None, :], mask=(row < end)[:, None], other=0.0)
            x = x * scale
            queries = queries + (x if KIND == "f32" or KIND == "bf16" else x.to(tl.float16),)
    return queries


@triton.jit
def load_places(
    positions, first, end, GROUP: tl.constexpr, ROWS: tl.constexpr, TILES: tl.constexpr
):
    """The position of each row: a tuple of int32 [ROWS]; -1, which sees nothing, beyond the end."""
    places = ()
    for t in tl.static_range(TILES):
        row = first + t * ROWS + tl.arange(0, ROWS)
        places = places + (tl.load(positions + row // GROUP, mask=row < end, other=-1),)
    return places


@triton.jit
def fresh_state(ROWS: tl.constexpr, TILES: tl.constexpr, KIND: tl.constexpr, DIM: tl.constexpr):
    """Of rows that have seen nothing."""
    tops, sums, totals = (), (), ()
    for _ in tl.static_range(TILES):
        tops = tops + (tl.full([ROWS], NOTHING, tl.float32),)
        sums = sums + (tl.zeros([ROWS], tl.float32),)
        for _ in tl.static_range(planes_of(KIND, DIM)):
            totals = totals + (tl.zeros([ROWS, plane_of(KIND, DIM)], tl.float32),)
    return tops, sums, totals


@triton.jit
def see(
    tops, sums, totals, queries, places, furthest, window, keys, key_planes, key_norms,
    value_planes, value_norms, TILES: tl.constexpr, WINDOWED: tl.constexpr,
    K: tl.constexpr, K_DIM: tl.constexpr, V: tl.constexpr, V_DIM: tl.constexpr,
):  # fmt: skip
    """The state of rows after a tile of keys at positions `keys`.

    furthest: all rows see the positions up to it.
    """
    K_PLANES: tl.constexpr = planes_of(K, K_DIM)
    V_PLANES: tl.constexpr = planes_of(V, V_DIM)
    new_tops, new_sums, new_totals = (), (), ()
    for t in tl.static_range(TILES):
        scores = _scores(queries, t * K_PLANES, key_planes, key_norms, K, K_DIM)
        place = places[t]
        seen = keys[None, :] <= tl.maximum(place, furthest)[:, None]
        if WINDOWED:
            seen = seen & (keys[None, :] > (place - window)[:, None])
        scores = tl.where(seen, scores, -float("inf"))
        top = tl.maximum(tops[t], tl.max(scores, 1))
        weights = tl.exp2(scores - top[:, None])
        shrink = tl.exp2(tops[t] - top)
        new_tops = new_tops + (top,)
        new_sums = new_sums + (sums[t] * shrink + tl.sum(weights, 1),)
        for p in tl.static_range(V_PLANES):
            total = totals[t * V_PLANES + p] * shrink[:, None]
            weighted = weights
            if has_norm(V):
                weighted = weights * value_norms[p // 4][None, :]
            new_totals = new_totals + (product(weighted, value_planes[p], total, V),)
    return new_tops, new_sums, new_totals


@triton.jit
def _scores(queries, at, planes, norms, KIND: tl.constexpr, DIM: tl.constexpr):
    """Scores [rows, keys] of the queries that begin at index `at` of the tuple."""
    ROWS: tl.constexpr = queries[0].shape[0]
    KEYS: tl.constexpr = planes[0].shape[0]
    scores = tl.zeros([ROWS, KEYS], tl.float32)
    if has_norm(KIND):
        for group in tl.static_range(DIM // 128):
            of_group = tl.zeros([ROWS, KEYS], tl.float32)
            for p in tl.static_range(4):
                plane = tl.trans(planes[4 * group + p])
                of_group = product(queries[at + 4 * group + p], plane, of_group, KIND)
            scores += of_group * norms[group][None, :]
    else:
        for p in tl.static_range(planes_of(KIND, DIM)):
            scores = product(queries[at + p], tl.trans(planes[p]), scores, KIND)
    return scores


@triton.jit
def product(a, b, total, KIND: tl.constexpr):
    """total + a b, on tensor cores, in the precision that numbers of this type need."""
    if KIND == "f32":
        total = tl.dot(a, b, total, input_precision="tf32x3")
    elif KIND == "bf16":
        total = tl.dot(a, b, total, input_precision="tf32")
    else:
        total = tl.dot(a.to(tl.float16), b, total)
    return total


@triton.jit
def store_state(
    partials, tops, sums, totals, peaks, base, first, end, ROWS: tl.constexpr, TILES: tl.constexpr,
    KIND: tl.constexpr, DIM: tl.constexpr,
):  # fmt: skip
    """partials, peaks: float32 [.., DIM] and [.., 2]; row r lies at base + r."""
    PLANE: tl.constexpr = plane_of(KIND, DIM)
    PLANES: tl.constexpr = planes_of(KIND, DIM)
    for t in tl.static_range(TILES):
        row = first + t * ROWS + tl.arange(0, ROWS)
        inside, at = row < end, base + row
        tl.store(peaks + 2 * at, tops[t], mask=inside)
        tl.store(peaks + 2 * at + 1, sums[t], mask=inside)
        for p in tl.static_range(PLANES):
            to = partials + (at * DIM)[:, None] + p * PLANE + tl.arange(0, PLANE)[None, :]
            tl.store(to, totals[t * PLANES + p], mask=inside[:, None])


@triton.jit
def load_state(
    partials, peaks, base, first, end, ROWS: tl.constexpr, TILES: tl.constexpr,
    KIND: tl.constexpr, DIM: tl.constexpr,
):  # fmt: skip
    """What `store_state` put down."""
    PLANE: tl.constexpr = plane_of(KIND, DIM)
    tops, sums, totals = (), (), ()
    for t in tl.static_range(TILES):
        row = first + t * ROWS + tl.arange(0, ROWS)
        inside, at = row < end, base + row
        tops = tops + (tl.load(peaks + 2 * at, mask=inside, other=NOTHING),)
        sums = sums + (tl.load(peaks + 2 * at + 1, mask=inside, other=0.0),)
        for p in tl.static_range(planes_of(KIND, DIM)):
            of = partials + (at * DIM)[:, None] + p * PLANE + tl.arange(0, PLANE)[None, :]
            totals = totals + (tl.load(of, mask=inside[:, None], other=0.0),)
    return tops, sums, totals
