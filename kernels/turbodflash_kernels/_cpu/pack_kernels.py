"""From planar rows to tiles (see layout.py)."""

from __future__ import annotations

import numba

from turbodflash_kernels._cpu import layout
from turbodflash_kernels._cpu.simd import (
    load_i32,
    load_i64,
    load_u8,
    load_u16,
    store_i8,
    store_i16,
    store_i32,
)
from turbodflash_kernels.planar import SUPER_BLOCK, Format

inline = numba.njit(error_model="numpy")


def build(name, *spec):
    return {"pack_quantised": pack_quantised, "pack_dense": pack_dense}[name](*spec)


def pack_quantised(fmt: Format):
    """words: tiles address, rows, cols, codes, scale, min, super_scale, super_min.

    One task: all rows, of which the last tile may lack some; missing rows become zeros.
    """
    bits, two_level, affine = fmt.bits, fmt.two_level, fmt.affine
    bytewide = two_level or fmt.powers
    parts = layout.BLOCK // fmt.block
    nibbles = fmt.nibbles
    scales_at, minima_at = layout.factor_offset(fmt, 0, 0), layout.factor_offset(fmt, 1, 0)
    part_bytes = layout.factor_bytes(fmt)
    block_bytes, header = layout.block_bytes(fmt), layout.header_bytes(fmt)
    per_super = SUPER_BLOCK // layout.BLOCK
    planes = layout.PLANES[bits]
    first, second = planes[0], planes[1] if len(planes) > 1 else 0
    low_mask = 0x01010101 * ((1 << first) - 1)
    high_mask = 0x01010101 * ((1 << second) - 1)

    @inline
    def merge(at, value, fresh):
        if fresh:
            store_i32(at, value)
        else:
            store_i32(at, value | load_i32(at))

    @inline
    def pack_codes(codes, cols, block, lane, to):
        """32 codes of one row into the block's planes, four at a time."""
        for step in range(8):
            four = load_i32(codes + block * 32 + 4 * step) & 0xFFFFFFFF
            at = to + 64 * (step % first) + 4 * lane
            merge(at, (four & low_mask) << (first * (step // first)), step < first)
            if second > 0:
                at = to + 64 * first + 64 * (step % second) + 4 * lane
                high = (four >> first) & high_mask
                merge(at, high << (second * (step // second)), step < second)

    @inline
    def put(at, lane, source, index):
        if bytewide:
            store_i8(at + lane, load_u8(source + index))
        else:
            store_i16(at + 2 * lane, load_u16(source + 2 * index))

    def pack(args, task, scratch):
        rows, cols = load_i64(args + 8), load_i64(args + 16)
        codes, scale, minimum = load_i64(args + 24), load_i64(args + 32), load_i64(args + 40)
        above, above_minimum = load_i64(args + 48), load_i64(args + 56)
        blocks, supers = cols // 32, cols // 256 if two_level else 0
        tile_bytes = blocks * block_bytes + supers * header
        for row in range(rows):
            lane = row % 16
            at = load_i64(args) + row // 16 * tile_bytes
            for block in range(blocks):
                if two_level and block % per_super == 0:
                    i = row * supers + block // per_super
                    store_i16(at + 2 * lane, load_u16(above + 2 * i))
                    if affine:
                        store_i16(at + 32 + 2 * lane, load_u16(above_minimum + 2 * i))
                    at += header
                pack_codes(codes + row * cols, cols, block, lane, at)
                for part in range(parts):
                    i = (row * blocks + block) * parts + part
                    put(at + scales_at + part * part_bytes, lane, scale, i)
                    if nibbles:
                        both = at + scales_at + part * part_bytes + lane
                        store_i8(both, load_u8(both) | load_u8(minimum + i) << 4)
                    elif affine:
                        put(at + minima_at + part * part_bytes, lane, minimum, i)
                at += block_bytes

    return pack


def pack_dense(size: int):
    """words: tiles address, rows, cols, values; size: bytes of a value."""

    def pack(args, task, scratch):
        rows, cols, values = load_i64(args + 8), load_i64(args + 16), load_i64(args + 24)
        for row in range(rows):
            at = load_i64(args) + row // 16 * cols * 16 * size + row % 16 * size
            source = values + row * cols * size
            for i in range(cols):
                if size == 4:
                    store_i32(at + 64 * i, load_i32(source + 4 * i))
                else:
                    store_i16(at + 32 * i, load_u16(source + 2 * i))

    return pack
