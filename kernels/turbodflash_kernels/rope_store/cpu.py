"""Kernels of `rope_store` for Numba."""

from __future__ import annotations

import math

import numba
import numpy as np

from turbodflash_kernels._cpu.norm_kernels import inverse_rms
from turbodflash_kernels._cpu.simd import (
    load_f32,
    load_i32,
    load_i64,
    store_f16,
    store_f32,
    vfma,
    vload,
    vsplat,
    vstore,
    vstore_f16,
    vswapped,
)

inline = numba.njit(error_model="numpy")
MOST = {"f16": np.float32(65504.0), "f32": np.finfo(np.float32).max}  # that a format can hold


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


def rotate(kind: str, format_k: str, format_v: str):
    """words: qkv, stride, positions, n, heads, kv_heads, head_dim, n_rot, angles, q, q_stride,
    k, k_head_bytes, v, v_head_bytes, rows_per_task, slots, q_norm, q_eps_bits, k_norm, k_eps_bits,
    finite. K and V as in _cpu/kv.py; the address of a norm's weight is 0 if there is none.
    """
    adjacent, wide_k, wide_v = kind == "norm", format_k == "f32", format_v == "f32"
    k_size, v_size = (4 if wide_k else 2), (4 if wide_v else 2)
    most_k, most_v = MOST[format_k], MOST[format_v]

    @inline
    def rotate_head(x, cos, n_rot, head_dim, to):
        half, sin = n_rot // 2, cos + 4 * n_rot
        whole = 0  # elements that are rotated sixteen at a time
        if adjacent or half % 16 == 0:
            whole = n_rot - n_rot % 16
        for i in range(0, whole, 16):
            v = vload(x + 4 * i)
            partner = vswapped(v) if adjacent else vload(x + 4 * ((i + half) % n_rot))
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
    def held(x, most, head_dim, to):
        """A head with 0 for NaN and for what is larger than `most`."""
        for i in range(head_dim):
            number = load_f32(x + 4 * i)
            store_f32(to + 4 * i, number if abs(number) <= most else np.float32(0.0))

    @inline
    def store_key(x, head_dim, to):
        """One position of sixteen: the elements of a key lie sixteen apart."""
        for i in range(head_dim):
            if wide_k:
                store_f32(to + 64 * i, load_f32(x + 4 * i))
            else:
                store_f16(to + 32 * i, load_f32(x + 4 * i))

    @inline
    def store_values(x, head_dim, to):
        rest = head_dim % 16
        for i in range(0, head_dim - rest, 16):
            if wide_v:
                vstore(to + 4 * i, vload(x + 4 * i))
            else:
                vstore_f16(to + 2 * i, vload(x + 4 * i))
        for i in range(head_dim - rest, head_dim):
            if wide_v:
                store_f32(to + 4 * i, load_f32(x + 4 * i))
            else:
                store_f16(to + 2 * i, load_f32(x + 4 * i))

    def kernel(args, task, scratch):
        heads, kv_heads, head_dim, n_rot = (
            load_i64(args + 32),
            load_i64(args + 40),
            load_i64(args + 48),
            load_i64(args + 56),
        )
        q_norm, k_norm = load_i64(args + 136), load_i64(args + 152)
        finite = load_i64(args + 168) != 0
        first = task * load_i64(args + 120)
        last = min(first + load_i64(args + 120), load_i64(args + 24))
        turned = scratch + 4 * head_dim
        for row in range(first, last):
            slot = load_i32(load_i64(args + 128) + 4 * row)
            cos = load_i64(args + 64) + row * 8 * n_rot
            x = load_i64(args) + row * load_i64(args + 8)
            q = load_i64(args + 72) + row * load_i64(args + 80)
            for head in range(heads):
                at = 4 * head * head_dim
                query = x + at
                if q_norm != 0:
                    norm_head(query, q_norm, load_f32(args + 144), head_dim, scratch)
                    query = scratch
                rotate_head(query, cos, n_rot, head_dim, q + at)
            keys, values = x + 4 * heads * head_dim, x + 4 * (heads + kv_heads) * head_dim
            k = load_i64(args + 88) + (slot // 16 * head_dim * 16 + slot % 16) * k_size
            v = load_i64(args + 104) + slot * head_dim * v_size
            for head in range(kv_heads):
                at = 4 * head * head_dim
                key = keys + at
                if k_norm != 0:
                    norm_head(key, k_norm, load_f32(args + 160), head_dim, scratch)
                    key = scratch
                rotate_head(key, cos, n_rot, head_dim, turned)
                value = values + at
                if finite:
                    held(turned, most_k, head_dim, turned)
                    held(value, most_v, head_dim, scratch)
                    value = scratch
                store_key(turned, head_dim, k + head * load_i64(args + 96))
                store_values(value, head_dim, v + head * load_i64(args + 112))

    return kernel
