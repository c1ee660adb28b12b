"""From the blocks of a file to tiles (see blocks.py and layout.py), without a planar form between.

Codes move four at a time. What a tile stores together is gathered before it is stored, and rows go
side by side, so that each cache line of a tile is written once.
"""

from __future__ import annotations

import numba

from turbodflash_kernels._cpu import layout
from turbodflash_kernels._cpu.atomics import call_kernel
from turbodflash_kernels._cpu.simd import (
    load_i32,
    load_i64,
    load_u8,
    load_u16,
    store_i8,
    store_i16,
    store_i32,
)
from turbodflash_kernels.blocks import Blocks, Plane
from turbodflash_kernels.planar import Format

RECORD_WORDS = 6

inline = numba.njit(error_model="numpy")


def build(name, *spec):
    return {"unpack": unpack, "each": each}[name](*spec)


def each():
    """For each of `count` records: call a kernel with the words behind its address."""

    def run(records, count, scratch):
        for i in range(count):
            record = records + i * 8 * RECORD_WORDS
            call_kernel(load_i64(record), record + 8, 0, scratch)

    return run


def unpack(fmt: Format, blocks: Blocks):
    """words: tiles address, rows, cols, address of the rows in the file.

    One task: all rows, of which the last tile may lack some; their places are not written.
    """
    two_level, affine = fmt.two_level, fmt.affine
    parts = layout.BLOCK // fmt.block
    scales_at, minima_at = layout.factor_offset(fmt, 0, 0), layout.factor_offset(fmt, 1, 0)
    part_bytes = layout.factor_bytes(fmt)
    tile_block, header = layout.block_bytes(fmt), layout.header_bytes(fmt)
    inner_blocks, nbytes = blocks.inputs // layout.BLOCK, blocks.nbytes
    scale_at, min_at, factors_at = blocks.scale, blocks.min, blocks.factors
    put_low, put_high = _mover(fmt, blocks, 0), _mover(fmt, blocks, 1)

    @inline
    def put_factors(source, inner, lane, to):
        """The scale, and the minimum, of a block of 32."""
        if two_level and affine:
            scale, minimum = _pair(source + factors_at, inner)
            store_i8(to + scales_at + lane, scale)
            store_i8(to + minima_at + lane, minimum)
        elif two_level:
            for part in range(parts):
                factor = load_u8(source + factors_at + inner * parts + part)
                store_i8(to + scales_at + part * part_bytes + lane, factor)
        else:
            store_i16(to + scales_at + 2 * lane, load_u16(source + scale_at))
            if affine:
                store_i16(to + minima_at + 2 * lane, load_u16(source + min_at))

    def run(args, task, scratch):
        tile, rows, cols = load_i64(args), load_i64(args + 8), load_i64(args + 16)
        first = load_i64(args + 24)
        groups = cols // (inner_blocks * 32)
        row_bytes = groups * nbytes
        group_bytes = inner_blocks * tile_block + header
        for row in range(0, rows, 16):
            lanes = min(rows - row, 16)
            for group in range(groups):
                start = first + row * row_bytes + group * nbytes
                at = tile + group * group_bytes
                for lane in range(lanes):
                    source = start + lane * row_bytes
                    if two_level:
                        store_i16(at + 2 * lane, load_u16(source + scale_at))
                        if affine:
                            store_i16(at + 32 + 2 * lane, load_u16(source + min_at) ^ 0x8000)
                    for inner in range(inner_blocks):
                        to = at + header + inner * tile_block
                        put_low(source, inner, to + 4 * lane)
                        put_high(source, inner, to + 4 * lane)
                        put_factors(source, inner, lane, to)
            tile += groups * group_bytes

    return run


@inline
def _pair(packed, index):
    """One of eight 6-bit scales and of as many minima in 12 bytes."""
    if index < 4:
        return load_u8(packed + index) & 63, load_u8(packed + index + 4) & 63
    low, last = load_u8(packed + index - 4), load_u8(packed + index + 4)
    return (last & 15) | (low >> 6 << 4), (last >> 4) | (load_u8(packed + index) >> 6 << 4)


def _mover(fmt: Format, blocks: Blocks, which: int):
    """move(source, inner, to): the words of one plane of a tile, of one row and block of 32."""
    planes = layout.PLANES[fmt.bits]
    if which >= len(planes):

        @inline
        def nothing(source, inner, to):
            return

        return nothing
    bits, below = planes[which], sum(planes[:which])
    codes = codes_of(blocks.planes[which], blocks.flip >> below)

    @inline
    def move(source, inner, to):
        for word in range(bits):
            gathered = 0
            for turn in range(8 // bits):
                four = codes(source, 32 * inner + 4 * (word + bits * turn))
                gathered |= four << (bits * turn)
            store_i32(to + 64 * below + 64 * word, gathered)

    return move


def codes_of(plane: Plane, flip: int):
    """codes(source, first): a plane's bits of four codes of a block, a byte each."""
    at, bits, width = plane
    mask = 0x01010101 * ((1 << bits) - 1)
    flipped = 0x01010101 * flip & mask
    run = width * (8 // bits)
    per_run, per_byte = run.bit_length() - 1, width.bit_length() - 1

    @inline
    def together(source, first):
        place = at + (first >> per_run) * width + (first & (width - 1))
        words = load_i32(source + place) & 0xFFFFFFFF
        return ((words >> (bits * ((first & (run - 1)) >> per_byte))) & mask) ^ flipped

    @inline
    def in_a_byte(source, first):
        four = (load_u8(source + at + (first >> 3)) >> (first & 7)) & 15
        return (four * 0x00204081) & 0x01010101

    return together if width > 1 else in_a_byte
