"""Kernel of `softcap` for Numba."""

from __future__ import annotations

from turbodflash_kernels._cpu.curve_kernels import tanh
from turbodflash_kernels._cpu.simd import (
    load_f32,
    load_i64,
    store_f32,
    vload,
    vload_partial,
    vsplat,
    vstore,
)


def build(name, *spec):
    return {"softcap": softcap}[name](*spec)


def softcap():
    """words: x, x_stride, out, out_stride, width, tasks_per_row, numbers_per_task, cap."""

    def kernel(args, task, scratch):
        per_row, per_task = load_i64(args + 40), load_i64(args + 48)
        x = load_i64(args) + task // per_row * load_i64(args + 8)
        out = load_i64(args + 16) + task // per_row * load_i64(args + 24)
        cap = vsplat(load_f32(args + 56))
        first = task % per_row * per_task
        last = min(first + per_task, load_i64(args + 32))
        rest = (last - first) % 16
        for i in range(first, last - rest, 16):
            vstore(out + 4 * i, cap * tanh(vload(x + 4 * i) / cap))
        if rest > 0:
            i = last - rest
            vstore(scratch, cap * tanh(vload_partial(x + 4 * i, rest) / cap))
            for j in range(rest):
                store_f32(out + 4 * (i + j), load_f32(scratch + 4 * j))

    return kernel
