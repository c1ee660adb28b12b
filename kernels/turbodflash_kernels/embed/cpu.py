"""Kernel of `embed` for Numba: single rows out of packed tiles."""

from __future__ import annotations

import numba
import numpy as np

from turbodflash_kernels._cpu import layout
from turbodflash_kernels._cpu.simd import (
    load_bf16,
    load_f16,
    load_f32,
    load_i8,
    load_i32,
    load_i64,
    load_u8,
    store_f32,
)
from turbodflash_kernels.planar import SUPER_BLOCK, Format

inline = numba.njit(error_model="numpy")


def build(name, *spec):
    return {"rows": rows_quantised, "rows_dense": rows_dense}[name](*spec)


def rows_dense(kind: str):
    """words: tokens, tiles, cols, scale_bits, out, out_stride. One task a token."""
    size = layout.DENSE_BYTES[kind]
    load = {"f32": load_f32, "f16": load_f16, "bf16": load_bf16}[kind]

    def kernel(args, task, scratch):
        token, cols = load_i32(load_i64(args) + 4 * task), load_i64(args + 16)
        scale = load_f32(args + 24)
        at = load_i64(args + 8) + (token // 16 * cols * 16 + token % 16) * size
        out = load_i64(args + 32) + task * load_i64(args + 40)
        for i in range(cols):
            store_f32(out + 4 * i, load(at + 16 * size * i) * scale)

    return kernel


def rows_quantised(fmt: Format):
    """words: as rows_dense."""
    planes = layout.PLANES[fmt.bits]
    first, second = planes[0], planes[1] if len(planes) > 1 else 0
    low_mask, high_mask = (1 << first) - 1, (1 << second) - 1
    two_level, affine, zero = fmt.two_level, fmt.affine, fmt.zero
    parts = layout.BLOCK // fmt.block
    nibbles, part_bytes = fmt.nibbles, layout.factor_bytes(fmt)
    scales_at, minima_at = layout.factor_offset(fmt, 0, 0), layout.factor_offset(fmt, 1, 0)
    size, header = layout.block_bytes(fmt), layout.header_bytes(fmt)
    per_super = SUPER_BLOCK // layout.BLOCK
    table = np.array(fmt.table or (0,), np.float32)
    has_table = bool(fmt.table)

    @inline
    def code(planes, lane, i):
        step = i // 4
        byte = 4 * lane + i % 4
        low = load_u8(planes + 64 * (step % first) + byte) >> (first * (step // first))
        value = low & low_mask
        if second > 0:
            at = planes + 64 * first + 64 * (step % second) + byte
            high = load_u8(at) >> (second * (step // second))
            value |= (high & high_mask) << first
        return value

    @inline
    def factor(at, lane, above, shift):
        if nibbles:
            return above * np.float32((load_u8(at + lane) >> shift) & 15)
        if two_level:
            return above * np.float32(load_i8(at + lane))
        return load_f16(at + 2 * lane)

    def kernel(args, task, scratch):
        token, cols = load_i32(load_i64(args) + 4 * task), load_i64(args + 16)
        out_scale = load_f32(args + 24)
        out = load_i64(args + 32) + task * load_i64(args + 40)
        lane, blocks = token % 16, cols // 32
        supers = blocks // per_super if two_level else 0
        at = load_i64(args + 8) + token // 16 * (blocks * size + supers * header)
        above = above_min = np.float32(0.0)
        for block in range(blocks):
            if two_level and block % per_super == 0:
                above = load_f16(at + 2 * lane)
                if affine:
                    above_min = load_f16(at + 32 + 2 * lane)
                at += header
            for i in range(32):
                part = i * parts // 32
                scale = factor(at + scales_at + part * part_bytes, lane, above, 0)
                q = code(at, lane, i)
                value = table[q] if has_table else np.float32(q - zero)
                value = value * scale
                if affine:
                    where = at + minima_at + part * part_bytes
                    value = value + factor(where, lane, above_min, 4)
                store_f32(out + 4 * (32 * block + i), value * out_scale)
            at += size

    return kernel
