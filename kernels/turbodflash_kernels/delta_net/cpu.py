"""Kernels of `delta_net` for Numba: convolve, step, gate."""

from __future__ import annotations

import math

import numba
import numpy as np

from turbodflash_kernels._cpu.curve_kernels import silu
from turbodflash_kernels._cpu.delta_kernels import (
    all_heads,
    channels_bytes,
    gates_at,
    head_at,
    pending_bytes,
    place_of,
    raw,
    raw_gates,
)
from turbodflash_kernels._cpu.delta_words import (
    BASE,
    CARRIED,
    COUNTS,
    DECAY,
    DT_BIAS,
    EPS,
    FIXED,
    HEAD_DIM,
    HEADS,
    KEPT,
    KEY_HEADS,
    NORM,
    NORM_EPS,
    OUT,
    PARENTS,
    PLAN,
    ROUND,
    ROWS_PER_TASK,
    SEEN,
    SETTLED,
    TAKEN,
    TAP_COUNT,
    TAPS,
    TOLD,
    VALUE_HEADS,
    WAITING,
    WINDOW,
    N,
)
from turbodflash_kernels._cpu.norm_kernels import inverse_rms
from turbodflash_kernels._cpu.recurrence_kernels import step
from turbodflash_kernels._cpu.simd import (
    load_f32,
    load_i32,
    load_i64,
    store_f32,
    store_i32,
    store_i64,
    vfma,
    vload,
    vsplat,
    vstore,
    vsum,
)

inline = numba.njit(error_model="numpy", forceinline=True)
ONE = np.float32(1.0)


def build(name):
    return {"convolve": convolve, "step": step, "gate": gate}[name]


@inline
def before(args, row, base):
    """The row that a row follows."""
    parents = load_i64(args + PARENTS)
    if parents == 0 or row <= base:
        return row - 1
    return base + load_i32(parents + 4 * (row - base))


@inline
def convolve_head(args, row, base, head, to):
    """The channels of one head, and the sum of squares of what comes out."""
    width, count = 4 * load_i64(args + HEAD_DIM), load_i64(args + TAP_COUNT)
    taps, stride = load_i64(args + TAPS) + head * width, channels_bytes(args)
    nothing = vsplat(np.float32(0.0))
    for tap in range(count - 1, -1, -1):
        u, weights = raw(args, row, base) + head * width, taps + tap * stride
        for i in range(0, width, 64):
            total = nothing if tap == count - 1 else vload(to + i)
            vstore(to + i, vfma(vload(weights + i), vload(u + i), total))
        row = before(args, row, base)
    squares = nothing
    for i in range(0, width, 64):
        c = silu(vload(to + i))
        squares = vfma(c, c, squares)
        vstore(to + i, c)
    return vsum(squares)


@inline
def gates_of(args, row, base, head, to):
    """How much of S stays, and how much of an error it is told."""
    beta = raw_gates(args, row, base) + 4 * head
    alpha = np.float64(load_f32(beta + 4 * load_i64(args + VALUE_HEADS)))
    alpha += np.float64(load_f32(load_i64(args + DT_BIAS) + 4 * head))
    time = alpha if alpha > 20.0 else math.log(1.0 + math.exp(alpha))
    kept = math.exp(np.float64(load_f32(load_i64(args + DECAY) + 4 * head)) * time)
    told = 1.0 / (1.0 + math.exp(-np.float64(load_f32(beta))))
    store_f32(to + KEPT, np.float32(kept))
    store_f32(to + TOLD, np.float32(told))


@inline
def convolve_row(args, row, base, head):
    """One head of a row as the recurrence takes it in, and the gates of a value head."""
    key_heads, dim = load_i64(args + KEY_HEADS), load_i64(args + HEAD_DIM)
    place = place_of(args, row, base)
    to = head_at(args, head, place)
    squares = convolve_head(args, row, base, head, to)
    if head >= 2 * key_heads:
        own = head - 2 * key_heads
        gates_of(args, row, base, own, gates_at(args, own, place))
        return
    scale = ONE / np.float32(math.sqrt(squares + load_f32(args + EPS)))
    if head < key_heads:
        scale *= ONE / np.float32(math.sqrt(np.float32(dim)))
    for i in range(0, 4 * dim, 64):
        vstore(to + i, vload(to + i) * vsplat(scale))


def convolve(args, task, scratch):
    """task = (block of rows, head of q, k or v). The first block takes the rows before x along."""
    block, head = task // all_heads(args), task % all_heads(args)
    counts, plan = load_i64(args + COUNTS), load_i64(args + PLAN)
    fresh = load_i32(load_i64(args + SEEN)) != load_i32(counts + ROUND)
    settle = load_i32(counts + SETTLED) if fresh else 0
    base = settle + load_i32(counts + CARRIED)
    if task == 0:
        store_i64(plan + BASE, base)
        store_i64(plan + FIXED, settle + load_i32(counts + TAKEN))
    if block == 0 and head >= load_i64(args + KEY_HEADS):  # nobody asks for their queries
        for row in range(base):
            convolve_row(args, row, base, head)
    first = base + block * load_i64(args + ROWS_PER_TASK)
    last = min(first + load_i64(args + ROWS_PER_TASK), base + load_i64(args + N))
    for row in range(first, last):
        convolve_row(args, row, base, head)


@inline
def gate_head(o, norm, eps, z, width, to):
    factor = vsplat(inverse_rms(o, width // 4, eps))
    for i in range(0, width, 64):
        vstore(to + i, vload(o + i) * factor * vload(norm + i) * silu(vload(z + i)))


@inline
def copy_head(source, width, to):
    for i in range(0, width, 64):
        vstore(to + i, vload(source + i))


@inline
def remember(args, head):
    """The window, and the pending rows, of one head's channels; with those of head 0 the gates."""
    plan, counts, n = load_i64(args + PLAN), load_i64(args + COUNTS), load_i64(args + N)
    base, fixed = load_i64(plan + BASE), load_i64(plan + FIXED)
    length, width = load_i64(args + TAP_COUNT) - 1, 4 * load_i64(args + HEAD_DIM)
    at = head * width
    for i in range(length):  # what is read lies at or behind what is written
        row = raw(args, fixed - length + i, base)
        copy_head(row + at, width, load_i64(args + WINDOW) + i * channels_bytes(args) + at)
    to = load_i64(args + WAITING) + load_i32(counts + CARRIED) * pending_bytes(args)
    for row in range(base + load_i32(counts + TAKEN), base + n):
        copy_head(raw(args, row, base) + at, width, to + at)
        if head == 0:
            gates = raw_gates(args, row, base)
            for i in range(0, 8 * load_i64(args + VALUE_HEADS), 4):
                store_f32(to + channels_bytes(args) + i, load_f32(gates + i))
        to += pending_bytes(args)
    if head == 0:
        store_i32(load_i64(args + SEEN), load_i32(counts + ROUND))


def gate(args, task, scratch):
    """task = (block of rows, value head), and after these a head of q, k or v to remember."""
    heads, width = load_i64(args + VALUE_HEADS), 4 * load_i64(args + HEAD_DIM)
    n, per_task = load_i64(args + N), load_i64(args + ROWS_PER_TASK)
    shares = (n + per_task - 1) // per_task * heads
    if task >= shares:
        remember(args, task - shares)
        return
    head, first = task % heads, task // heads * per_task
    for row in range(first, min(first + per_task, n)):
        o = load_i64(args + HEADS) + (head * n + row) * width
        z = raw(args, row, 0) + channels_bytes(args) + head * width
        to = load_i64(args + OUT) + (row * heads + head) * width
        gate_head(o, load_i64(args + NORM), load_f32(args + NORM_EPS), z, width, to)
