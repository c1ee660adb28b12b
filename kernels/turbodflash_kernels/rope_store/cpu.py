"""Kernels of `rope_store` for Numba."""

from __future__ import annotations

import math

import numba
import numpy as np

from turbodflash_kernels._cpu.calls import call4
from turbodflash_kernels._cpu.encode_kernels import WORK
from turbodflash_kernels._cpu.gather_kernels import copy_bytes, keys_at, put_key, values_at
from turbodflash_kernels._cpu.kv_words import (
    CHUNK,
    ENCODE_K,
    ENCODE_V,
    K_TILE,
    MOST_K,
    MOST_V,
    PIECES_K,
    PIECES_V,
    SUM_K,
    SUM_V,
    TURN_K,
    TURN_V,
    V_ROW,
    WIDTH_K,
)
from turbodflash_kernels._cpu.norm_kernels import inverse_rms
from turbodflash_kernels._cpu.simd import (
    load_f32,
    load_i32,
    load_i64,
    store_f32,
    vfma,
    vload,
    vsplat,
    vstore,
    vswapped,
)
from turbodflash_kernels._cpu.turn_kernels import turn

inline = numba.njit(error_model="numpy")

# words of `rotate`
QKV, QKV_STRIDE, POSITIONS, N, HEADS, KV_HEADS, HEAD_DIM, N_ROT, ANGLES = range(0, 72, 8)
Q, Q_STRIDE, KV, ROWS_PER_TASK, SLOTS = range(72, 112, 8)
Q_NORM, Q_EPS, K_NORM, K_EPS, V_NORM, V_EPS, FINITE, KEY_TASKS = range(112, 176, 8)


def build(name, *spec):
    return {"angles": angles, "rotate": rotate}[name](*spec)


def angles(kind: str):
    """words: positions, n, inv_freq, half, magnitude_bits, out [n, 2, 2 * half].

    For each element the cosine, and the sine with the sign that its partner comes with:
    rotated[i] = x[i] * cosine[i] + x[partner of i] * sine[i].
    """
    adjacent = kind == "norm"

    def kernel(args, task, scratch):
        position = load_i32(load_i64(args) + 4 * task)
        inv_freq, half = load_i64(args + 16), load_i64(args + 24)
        magnitude = load_f32(args + 32)
        cos = load_i64(args + 40) + task * 16 * half
        sin = cos + 8 * half
        for i in range(half):
            # the product in double: a float32 angle is off by 1e-3 at position 20,000
            angle = np.float64(position) * np.float64(load_f32(inv_freq + 4 * i))
            c, s = np.float32(math.cos(angle)) * magnitude, np.float32(math.sin(angle)) * magnitude
            first, second = (2 * i, 2 * i + 1) if adjacent else (i, i + half)
            store_f32(cos + 4 * first, c)
            store_f32(cos + 4 * second, c)
            store_f32(sin + 4 * first, -s)
            store_f32(sin + 4 * second, s)

    return kernel


def rotate(kind: str):
    """words: see the names above; norms and slots as for the op, 0 for a norm that there is not.

    KEY_TASKS: so many tasks store the keys of a head each, of all rows, before others do the rest
    of some rows: keys of neighbouring positions share cache lines, which threads would take from
    each other. 0: tasks do all of their rows.
    """
    adjacent = kind == "norm"

    @inline
    def rotate_head(x, cos, n_rot, head_dim, to):
        half, sin = n_rot // 2, cos + 4 * n_rot
        whole = 0  # elements that are rotated sixteen at a time
        if adjacent or half % 16 == 0:
            whole = n_rot - n_rot % 16
        for i in range(0, whole, 16):
            v = vload(x + 4 * i)
            other = i + half if i < half else i - half
            partner = vswapped(v) if adjacent else vload(x + 4 * other)
            vstore(to + 4 * i, vfma(partner, vload(sin + 4 * i), v * vload(cos + 4 * i)))
        for i in range(whole, n_rot):
            partner = i ^ 1 if adjacent else (i + half) % n_rot
            kept = load_f32(x + 4 * i) * load_f32(cos + 4 * i)
            store_f32(to + 4 * i, kept + load_f32(x + 4 * partner) * load_f32(sin + 4 * i))
        for i in range(n_rot, head_dim):
            store_f32(to + 4 * i, load_f32(x + 4 * i))

    @inline
    def norm_head(x, norm, eps, head_dim, to):
        factor, rest = inverse_rms(x, head_dim, eps), head_dim % 16
        for i in range(0, head_dim - rest, 16):
            vstore(to + 4 * i, vload(x + 4 * i) * vsplat(factor) * vload(norm + 4 * i))
        for i in range(head_dim - rest, head_dim):
            store_f32(to + 4 * i, load_f32(x + 4 * i) * factor * load_f32(norm + 4 * i))

    @inline
    def hold(x, most, head_dim):
        """0 in place of NaN and of what is larger than `most`."""
        for i in range(head_dim):
            number = load_f32(x + 4 * i)
            store_f32(x + 4 * i, number if abs(number) <= most else np.float32(0.0))

    @inline
    def fill_up(x, head_dim, width):
        for i in range(head_dim, width):
            store_f32(x + 4 * i, np.float32(0.0))

    def kernel(args, task, scratch):
        kv, heads, kv_heads = load_i64(args + KV), load_i64(args + HEADS), load_i64(args + KV_HEADS)
        head_dim, n_rot = load_i64(args + HEAD_DIM), load_i64(args + N_ROT)
        width_q, width_k, width_v = (
            load_i64(kv + WIDTH_K),
            load_i64(kv + SUM_K),
            load_i64(kv + SUM_V),
        )
        turn_k, turn_v = load_i64(kv + TURN_K), load_i64(kv + TURN_V)
        finite = load_i64(args + FINITE) != 0
        key_tasks = load_i64(args + KEY_TASKS)
        if task < key_tasks:
            first, last = 0, load_i64(args + N)
            heads_here, first_key, last_key, values_here = 0, task, task + 1, 0
        else:
            first = (task - key_tasks) * load_i64(args + ROWS_PER_TASK)
            last = min(first + load_i64(args + ROWS_PER_TASK), load_i64(args + N))
            heads_here, first_key, values_here = heads, 0, kv_heads
            last_key = 0 if key_tasks > 0 else kv_heads
        normed = scratch
        head_at = normed + 4 * max(width_k, width_v)
        work = head_at + 4 * max(width_k, width_v)
        key_row = work + WORK
        for row in range(first, last):
            slot = load_i32(load_i64(args + SLOTS) + 4 * row)
            cos = load_i64(args + ANGLES) + row * 8 * n_rot
            x = load_i64(args + QKV) + row * load_i64(args + QKV_STRIDE)
            q = load_i64(args + Q) + row * load_i64(args + Q_STRIDE)
            for head in range(heads_here):
                query, to = x + 4 * head * head_dim, q + 4 * head * width_q
                if load_i64(args + Q_NORM) != 0:
                    norm_head(query, load_i64(args + Q_NORM), load_f32(args + Q_EPS), head_dim,
                              normed)  # fmt: skip
                    query = normed
                rotate_head(query, cos, n_rot, head_dim, to)
                fill_up(to, head_dim, width_q)
                turn(kv, to, width_q, turn_k, 0)
            keys, values = x + 4 * heads * head_dim, x + 4 * (heads + kv_heads) * head_dim
            chunk, at = slot // CHUNK, slot % CHUNK
            for head in range(first_key, last_key):
                key = keys + 4 * head * head_dim
                if load_i64(args + K_NORM) != 0:
                    norm_head(key, load_i64(args + K_NORM), load_f32(args + K_EPS), head_dim,
                              normed)  # fmt: skip
                    key = normed
                rotate_head(key, cos, n_rot, head_dim, head_at)
                if finite:
                    hold(head_at, load_f32(kv + MOST_K), head_dim)
                fill_up(head_at, head_dim, width_k)
                turn(kv, head_at, width_k, turn_k, 0)
                call4(load_i64(kv + ENCODE_K), head_at, load_i64(kv + PIECES_K), key_row, work)
                tile = keys_at(kv, chunk, head) + at // 16 * load_i64(kv + K_TILE)
                put_key(kv, key_row, tile, at % 16)
            for head in range(values_here):
                value = values + 4 * head * head_dim
                if load_i64(args + V_NORM) != 0:
                    norm_head(value, load_i64(args + V_NORM), load_f32(args + V_EPS), head_dim,
                              normed)  # fmt: skip
                    value = normed
                if finite or turn_v != 0 or width_v != head_dim:
                    copy_bytes(value, 4 * head_dim, head_at)
                    value = head_at
                    if finite:
                        hold(head_at, load_f32(kv + MOST_V), head_dim)
                    fill_up(head_at, head_dim, width_v)
                    turn(kv, head_at, width_v, turn_v, 0)
                to = values_at(kv, chunk, head) + at * load_i64(kv + V_ROW)
                call4(load_i64(kv + ENCODE_V), value, load_i64(kv + PIECES_V), to, work)

    return kernel
