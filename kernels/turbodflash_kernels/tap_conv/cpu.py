"""Kernel of `tap_conv` for Numba."""

from __future__ import annotations

import numba
import numpy as np

from turbodflash_kernels._cpu.simd import (
    load_f32,
    load_i64,
    store_f32,
    vfma,
    vload,
    vsplat,
    vstore,
)

inline = numba.njit(error_model="numpy")


def build(name, *spec):
    return {"convolve": convolve}[name](*spec)


def convolve(whole: bool):
    """words: base, base_stride, taps, width, group, x, x_stride, dynamic, dynamic_stride,
    residual, residual_stride, out, out_stride. One task a row.

    whole: groups are whole vectors of sixteen channels.
    """

    @inline
    def sixteen(base, base_stride, x, x_stride, dynamic, groups, taps):
        total = vsplat(np.float32(0.0))
        for tap in range(taps):
            weight = vload(base + tap * base_stride)
            weight = weight + vsplat(load_f32(dynamic + 4 * tap * groups))
            total = vfma(weight, vload(x - tap * x_stride), total)
        return total

    @inline
    def one(base, base_stride, x, x_stride, dynamic, groups, taps):
        total = np.float32(0.0)
        for tap in range(taps):
            weight = load_f32(base + tap * base_stride) + load_f32(dynamic + 4 * tap * groups)
            total += weight * load_f32(x - tap * x_stride)
        return total

    def kernel(args, task, scratch):
        base, base_stride = load_i64(args), load_i64(args + 8)
        taps, width, group = load_i64(args + 16), load_i64(args + 24), load_i64(args + 32)
        x_stride = load_i64(args + 48)
        x = load_i64(args + 40) + task * x_stride
        dynamic = load_i64(args + 56) + task * load_i64(args + 64)
        residual = load_i64(args + 72)
        if residual != 0:
            residual += task * load_i64(args + 80)
        out = load_i64(args + 88) + task * load_i64(args + 96)
        taps, groups = min(taps, task + 1), width // group  # before row 0 there is nothing
        for c in range(0, width, 16 if whole else 1):
            at, own = 4 * c, dynamic + 4 * (c // group)
            if whole:
                v = sixteen(base + at, base_stride, x + at, x_stride, own, groups, taps)
                if residual != 0:
                    v = v + vload(residual + at)
                vstore(out + at, v)
            else:
                y = one(base + at, base_stride, x + at, x_stride, own, groups, taps)
                if residual != 0:
                    y = y + load_f32(residual + at)
                store_f32(out + at, y)

    return kernel
