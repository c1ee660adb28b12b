"""Kernel of `tap` for Numba."""

from __future__ import annotations

from turbodflash_kernels._cpu.simd import load_f32, load_i32, load_i64, store_f32, vload, vstore


def build(name, *spec):
    return {"tap": tap}[name](*spec)


def tap():
    """words: x, x_stride, positions, ring, ring_stride, slots, width. One task a row."""

    def kernel(args, task, scratch):
        x = load_i64(args) + task * load_i64(args + 8)
        slot = load_i32(load_i64(args + 16) + 4 * task) % load_i64(args + 40)
        kept, width = load_i64(args + 24) + slot * load_i64(args + 32), load_i64(args + 48)
        rest = width % 16
        for i in range(0, width - rest, 16):
            vstore(kept + 4 * i, vload(x + 4 * i))
        for i in range(width - rest, width):
            store_f32(kept + 4 * i, load_f32(x + 4 * i))

    return kernel
