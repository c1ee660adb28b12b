"""Kernel of `add` for Numba."""

from __future__ import annotations

import numba
import numpy as np

from turbodflash_kernels._cpu.norm_kernels import inverse_rms
from turbodflash_kernels._cpu.simd import load_f32, load_i64, store_f32, vload, vsplat, vstore

inline = numba.njit(error_model="numpy", forceinline=True)

PARTS = 48  # where the words of the parts begin, four of each


def build(name, *spec):
    return {"add": add}[name](*spec)


@inline
def put(x, weight, factor, scale, width, out, further):
    """out becomes, or grows by, x * factor * weight; then it is scaled."""
    rest = width % 16
    for i in range(0, width - rest, 16):
        v = vload(x + 4 * i)
        if weight != 0:
            v = v * vsplat(factor) * vload(weight + 4 * i)
        if further:
            v = vload(out + 4 * i) + v
        vstore(out + 4 * i, v * vsplat(scale))
    for i in range(width - rest, width):
        one = load_f32(x + 4 * i)
        if weight != 0:
            one = one * factor * load_f32(weight + 4 * i)
        if further:
            one = load_f32(out + 4 * i) + one
        store_f32(out + 4 * i, one * scale)


def add():
    """words: width of a group, groups, scale, out, out_stride, parts, then of each part its
    address, stride, norm weight (0: none) and eps. One task a row.
    """

    def kernel(args, task, scratch):
        width, groups, parts = load_i64(args), load_i64(args + 8), load_i64(args + 40)
        out = load_i64(args + 24) + task * load_i64(args + 32)
        for group in range(groups):
            at = 4 * group * width
            for part in range(parts):
                words = args + PARTS + 32 * part
                x = load_i64(words) + task * load_i64(words + 8) + at
                weight, factor, scale = load_i64(words + 16), np.float32(1.0), np.float32(1.0)
                if weight != 0:
                    factor = inverse_rms(x, width, load_f32(words + 24))
                if part == parts - 1:
                    scale = load_f32(args + 16)
                put(x, weight, factor, scale, width, out + at, part > 0)

    return kernel
