"""Kernel of `embed` for Numba: single rows out of packed tiles."""

from __future__ import annotations

import numba
import numpy as np

from turbodflash_kernels._cpu import layout, streams
from turbodflash_kernels._cpu.simd import (
    load_bf16,
    load_f16,
    load_f32,
    load_i8,
    load_i32,
    load_i64,
    load_u8,
    prefetch,
    store_f32,
    store_i32,
    vload,
    vload_u8,
    vsplat,
    vstore,
)
from turbodflash_kernels.planar import SUPER_BLOCK, Format

inline = numba.njit(error_model="numpy")
AHEAD = 2048  # a row is spread over its whole tile, which is in no cache: bytes to ask for early


def build(name, *spec):
    return {"rows": rows_quantised, "rows_dense": rows_dense}[name](*spec)


@inline
def ask_for(at, size):
    for line in range(0, size, 64):
        prefetch(at + line)


def rows_dense(kind: str):
    """words: tokens, token_stride, tiles, cols, scale_bits, out, out_stride. One task a token."""
    size = layout.DENSE_BYTES[kind]
    load = {"f32": load_f32, "f16": load_f16, "bf16": load_bf16}[kind]

    def kernel(args, task, scratch):
        token = load_i32(load_i64(args) + task * load_i64(args + 8))
        cols, scale = load_i64(args + 24), load_f32(args + 32)
        tile = load_i64(args + 16) + token // 16 * cols * 16 * size
        ask_for(tile, AHEAD)
        at = tile + token % 16 * size
        out = load_i64(args + 40) + task * load_i64(args + 48)
        for i in range(cols):
            prefetch(at + 16 * size * i + AHEAD)
            store_f32(out + 4 * i, load(at + 16 * size * i) * scale)

    return kernel


def rows_quantised(fmt: Format, in_two: bool):
    """words: as rows_dense; of codes kept in two streams then the tiles of the lowest bits."""
    stored = streams.UPPER if in_two else fmt
    planes = layout.PLANES[stored.bits]
    first, second = planes[0], planes[1] if len(planes) > 1 else 0
    low_mask, high_mask = ((2**bits - 1) * 0x01010101 for bits in (first, second))
    two_level, affine, zero = fmt.two_level, fmt.affine, np.float32(fmt.zero)
    parts = layout.BLOCK // fmt.block
    nibbles, part_bytes = fmt.nibbles, layout.factor_bytes(fmt)
    scales_at, minima_at = layout.factor_offset(stored, 0, 0), layout.factor_offset(stored, 1, 0)
    size, header = layout.block_bytes(stored), layout.header_bytes(stored)
    per_super = SUPER_BLOCK // layout.BLOCK
    table = np.array(fmt.table or (0,), np.float32)
    has_table = bool(fmt.table)
    powers = fmt.powers
    power_of_two = np.ldexp(np.float32(1.0), np.arange(-128, 128))
    raise_by = np.float32(2.0**fmt.exponent)

    @inline
    def unpack_codes(planes, lower, lane, to):
        """A row's 32 codes of a block, one byte each; four of a step lie side by side."""
        for step in range(8):
            word = load_i32(planes + 64 * (step % first) + 4 * lane)
            word = (word >> (first * (step // first))) & low_mask
            if second > 0:
                high = load_i32(planes + 64 * (first + step % second) + 4 * lane)
                word |= ((high >> (second * (step // second))) & high_mask) << first
            if in_two:
                low = load_i32(lower + 64 * (step % 2) + 4 * lane) >> (2 * (step // 2))
                word = word << 2 | (low & 0x03030303)
            store_i32(to + 4 * step, word)

    @inline
    def sixteen(codes, values):
        """What sixteen codes stand for, before scales."""
        if not has_table:
            return vload_u8(codes) - vsplat(zero)
        for i in range(16):
            store_f32(values + 4 * i, table[np.uint8(load_u8(codes + i))])
        return vload(values)

    @inline
    def factor(at, lane, above, shift):
        if nibbles:
            return above * np.float32((load_u8(at + lane) >> shift) & 15)
        if powers:
            return power_of_two[load_i8(at + lane) + 128]
        if two_level:
            return above * np.float32(load_i8(at + lane))
        return load_f16(at + 2 * lane)

    def kernel(args, task, scratch):
        token = load_i32(load_i64(args) + task * load_i64(args + 8))
        cols, out_scale = load_i64(args + 24), vsplat(load_f32(args + 32))
        out = load_i64(args + 40) + task * load_i64(args + 48)
        lane, blocks = token % 16, cols // 32
        supers = blocks // per_super if two_level else 0
        at = load_i64(args + 16) + token // 16 * (blocks * size + supers * header)
        ask_for(at, AHEAD)
        above = above_min = np.float32(0.0)
        lower = load_i64(args + 56) + token // 16 * blocks * streams.LOWER_BYTES
        if in_two:
            ask_for(lower, AHEAD)
        for block in range(blocks):
            ask_for(at + AHEAD, size)
            if in_two:
                ask_for(lower + AHEAD, streams.LOWER_BYTES)
            if two_level and block % per_super == 0:
                above = load_f16(at + 2 * lane) * raise_by
                if affine:
                    above_min = load_f16(at + 32 + 2 * lane)
                at += header
            unpack_codes(at, lower, lane, scratch)
            for half in range(2):
                where = at + half * parts // 2 * part_bytes
                v = sixteen(scratch + 16 * half, scratch + 64)
                v = v * vsplat(factor(where + scales_at, lane, above, 0))
                if affine:
                    v = v + vsplat(factor(where + minima_at, lane, above_min, 4))
                vstore(out + 4 * (32 * block + 16 * half), v * out_scale)
            at += size
            lower += streams.LOWER_BYTES

    return kernel
