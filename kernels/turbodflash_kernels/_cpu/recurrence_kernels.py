"""The recurrence of a delta net, on sixteen columns of one head's S.

A row looks at S, and from what it finds an update follows: S = g S + k delta^T. The update waits
until the next row looks, so that one pass over S does both. Columns know nothing of each other.
"""

from __future__ import annotations

import numba
import numpy as np

from turbodflash_kernels._cpu.delta_kernels import gates_at, head_at, place_of
from turbodflash_kernels._cpu.delta_words import (
    BASE,
    FIXED,
    HEAD_DIM,
    HEADS,
    KEPT,
    KEY_HEADS,
    NODE_BYTES,
    PARENTS,
    PLAN,
    TOLD,
    N,
    S,
)
from turbodflash_kernels._cpu.simd import (
    load_f32,
    load_i32,
    load_i64,
    store_i64,
    vfma,
    vload,
    vsplat,
    vstore,
    vsum,
)

inline = numba.njit(error_model="numpy", forceinline=True)
ZERO = np.float32(0.0)
COLUMN = 64  # bytes of sixteen columns
MADE_FROM, IS_MADE = 64, 72  # of a node, behind its delta


@inline
def look(s, k, q, dim):
    """S^T k and S^T q."""
    told, found = vsplat(ZERO), vsplat(ZERO)
    told_2, found_2 = told, found  # two sums each, or every addition waits for the one before
    for i in range(0, 4 * dim, 8):
        row, row_2 = vload(s + 16 * i), vload(s + 16 * i + COLUMN)
        told = vfma(row, vsplat(load_f32(k + i)), told)
        found = vfma(row, vsplat(load_f32(q + i)), found)
        told_2 = vfma(row_2, vsplat(load_f32(k + i + 4)), told_2)
        found_2 = vfma(row_2, vsplat(load_f32(q + i + 4)), found_2)
    return told + told_2, found + found_2


@inline
def take(s, to, g, k, delta, dim):
    """to = g S + k delta^T."""
    stays = vsplat(g)
    for i in range(0, 4 * dim, 4):
        row = vfma(vsplat(load_f32(k + i)), delta, vload(s + 16 * i) * stays)
        vstore(to + 16 * i, row)


@inline
def take_and_look(s, to, g, k, delta, next_k, next_q, dim):
    """`take`, and `look` at what comes of it while it is at hand."""
    stays = vsplat(g)
    told, found = vsplat(ZERO), vsplat(ZERO)
    told_2, found_2 = told, found
    for i in range(0, 4 * dim, 8):
        old, old_2 = vload(s + 16 * i) * stays, vload(s + 16 * i + COLUMN) * stays
        row = vfma(vsplat(load_f32(k + i)), delta, old)
        row_2 = vfma(vsplat(load_f32(k + i + 4)), delta, old_2)
        vstore(to + 16 * i, row)
        vstore(to + 16 * i + COLUMN, row_2)
        told = vfma(row, vsplat(load_f32(next_k + i)), told)
        found = vfma(row, vsplat(load_f32(next_q + i)), found)
        told_2 = vfma(row_2, vsplat(load_f32(next_k + i + 4)), told_2)
        found_2 = vfma(row_2, vsplat(load_f32(next_q + i + 4)), found_2)
    return told + told_2, found + found_2


@inline
def dot(a, b, dim):
    total = vsplat(ZERO)
    for i in range(0, 4 * dim, COLUMN):
        total = vfma(vload(a + i), vload(b + i), total)
    return vsum(total)


@inline
def answer(told, found, q, k, v, gates, dim, out):
    """What S is told: delta. What the row finds goes to `out`, if that is not 0."""
    g = vsplat(load_f32(gates + KEPT))
    delta = vsplat(load_f32(gates + TOLD)) * (vload(v) - g * told)
    if out != 0:
        vstore(out, vfma(vsplat(dot(q, k, dim)), delta, g * found))
    return delta


def step(args, task, scratch):
    """task = (value head, sixteen columns): S is read and written once, whatever happens to it."""
    dim, n, key_heads = load_i64(args + HEAD_DIM), load_i64(args + N), load_i64(args + KEY_HEADS)
    blocks = 4 * dim // COLUMN
    head, column = task // blocks, COLUMN * (task % blocks)
    base, fixed = load_i64(load_i64(args + PLAN) + BASE), load_i64(load_i64(args + PLAN) + FIXED)
    queries = head_at(args, head % key_heads, 0)
    keys = head_at(args, key_heads + head % key_heads, 0)
    values, gates = head_at(args, 2 * key_heads + head, 0) + column, gates_at(args, head, 0)
    out = load_i64(args + HEADS) + 4 * head * n * dim + column
    s, parents = load_i64(args + S) + task * COLUMN * dim, load_i64(args + PARENTS)
    at, before, delta = s, 0, vsplat(ZERO)
    for row in range(base + (1 if parents != 0 else n)):  # of a tree, the root at first
        place = place_of(args, row, base)
        q, k, v = queries + 4 * dim * place, keys + 4 * dim * place, values + 4 * dim * place
        if row == 0:
            told, found = look(s, k, q, dim)
        else:
            to = s if row == fixed else scratch
            g, last_k = load_f32(gates + 8 * before + KEPT), keys + 4 * dim * before
            told, found = take_and_look(at, to, g, last_k, delta, k, q, dim)
            at = to
        result = out + 4 * dim * (row - base) if row >= base else 0
        delta = answer(told, found, q, k, v, gates + 8 * place, dim, result)
        before = place
    if fixed == base + n:
        take(at, s, load_f32(gates + 8 * before + KEPT), keys + 4 * dim * before, delta, dim)
    if parents != 0:
        branch(n, parents, at, delta, scratch + COLUMN * dim, before, queries, keys, values, gates,
               dim, out)  # fmt: skip


@inline
def branch(n, parents, at, delta, made, root, queries, keys, values, gates, dim, out):
    """The other rows of a tree. What follows a node, its S, is made when a child first looks.

    at, delta: S before the root, and what it is told. root: its place. made: room for an S of every
    node, and NODE_BYTES.
    """
    nodes = made + COLUMN * dim * n
    vstore(nodes, delta)
    store_i64(nodes + MADE_FROM, at)
    store_i64(nodes + IS_MADE, 0)
    for row in range(1, n):
        above = load_i32(parents + 4 * row)
        parent, own = nodes + NODE_BYTES * above, made + COLUMN * dim * above
        here, there = 4 * dim * (root + row), 4 * dim * (root + above)
        q, k = queries + here, keys + here
        if load_i64(parent + IS_MADE) == 0:
            store_i64(parent + IS_MADE, 1)
            g, source = load_f32(gates + 8 * (root + above) + KEPT), load_i64(parent + MADE_FROM)
            told, found = take_and_look(source, own, g, keys + there, vload(parent), k, q, dim)
        else:
            told, found = look(own, k, q, dim)
        delta = answer(
            told, found, q, k, values + here, gates + 8 * (root + row), dim, out + 4 * dim * row
        )
        node = nodes + NODE_BYTES * row
        vstore(node, delta)
        store_i64(node + MADE_FROM, own)
        store_i64(node + IS_MADE, 0)
