"""Taking codes of 8 bits apart, and what the upper bits leave open (see streams.py)."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
from llvmlite import ir

from turbodflash_kernels._cpu import layout, streams
from turbodflash_kernels._cpu.block_floats import half_lanes
from turbodflash_kernels._cpu.emit import (
    V_F32,
    V_I32,
    Builder,
    Values,
    call,
    constant_splat,
    fma,
    function,
    load,
    offset,
    plus,
    repeat,
    store,
)
from turbodflash_kernels._cpu.simd import (
    load_f32,
    load_i32,
    load_i64,
    load_u16,
    store_f32,
    store_i16,
    store_i32,
)
from turbodflash_kernels._cpu.unpack_kernels import codes_of
from turbodflash_kernels.blocks import Blocks

UPPER_BYTES, SCALES = layout.block_bytes(streams.UPPER), layout.code_bytes(streams.UPPER)
SECOND_PLANE = layout.TILE * layout.BLOCK * layout.PLANES[streams.UPPER.bits][0] // 8

MOST_CODES = 128 * math.sqrt(layout.BLOCK)  # the norm of a block's codes - zero, at most

inline = numba.njit(error_model="numpy")


def build(name, *spec):
    return {"unpack": unpack, "pack": pack, "reaches": reaches}[name](*spec)


@inline
def put_codes(fours, upper, lower):
    """Of a row's block of 32: fours are its codes, four to a word, the others its places."""
    for word in range(4):
        first, second = (fours[word] >> 2) & 0x0F0F0F0F, (fours[word + 4] >> 2) & 0x0F0F0F0F
        store_i32(upper + 64 * word, first | second << 4)
    for word in range(2):
        high = low = 0
        for turn in range(4):
            four = fours[word + 2 * turn]
            high |= ((four >> 6) & 0x03030303) << (2 * turn)
            low |= (four & 0x03030303) << (2 * turn)
        store_i32(upper + SECOND_PLANE + 64 * word, high)
        store_i32(lower + 64 * word, low)


@inline
def eight(four, source):
    """four(source, i) of the first inputs of all steps."""
    return (
        four(source, 0), four(source, 4), four(source, 8), four(source, 12),
        four(source, 16), four(source, 20), four(source, 24), four(source, 28),
    )  # fmt: skip


@inline
def bytes_of(source, i):
    return load_i32(source + i) & 0xFFFFFFFF


def unpack(blocks: Blocks):
    """words: upper tiles, rows, cols, address of the rows in the file, lower tiles.

    As `unpack` of unpack_kernels.
    """
    codes, nbytes, scale_at = codes_of(blocks.planes[0], blocks.flip), blocks.nbytes, blocks.scale

    def run(args, task, scratch):
        upper, rows, cols = load_i64(args), load_i64(args + 8), load_i64(args + 16)
        first, lower = load_i64(args + 24), load_i64(args + 32)
        count = cols // layout.BLOCK
        for row in range(0, rows, 16):
            lanes = min(rows - row, 16)
            for block in range(count):
                for lane in range(lanes):
                    source = first + ((row + lane) * count + block) * nbytes
                    fours = eight(codes, source)
                    put_codes(fours, upper + 4 * lane, lower + 4 * lane)
                    store_i16(upper + SCALES + 2 * lane, load_u16(source + scale_at))
                upper += UPPER_BYTES
                lower += streams.LOWER_BYTES

    return run


def pack():
    """words: upper tiles, rows, cols, lower tiles, codes, scales: a planar matrix."""

    def run(args, task, scratch):
        rows, cols = load_i64(args + 8), load_i64(args + 16)
        codes, scales = load_i64(args + 32), load_i64(args + 40)
        count = cols // layout.BLOCK
        for row in range(rows):
            lane, tile = row % 16, row // 16 * count
            upper = load_i64(args) + tile * UPPER_BYTES
            lower = load_i64(args + 24) + tile * streams.LOWER_BYTES
            for block in range(count):
                fours = eight(bytes_of, codes + row * cols + 32 * block)
                put_codes(fours, upper + 4 * lane, lower + 4 * lane)
                scale = load_u16(scales + 2 * (row * count + block))
                store_i16(upper + SCALES + 2 * lane, scale)
                upper += UPPER_BYTES
                lower += streams.LOWER_BYTES

    return run


def _tile_norms() -> Any:
    """norms(upper, lower, blocks, out): of each of sixteen rows, squared: of what its upper codes
    leave open, and of its scales; f32[2, 16]."""

    def emit(builder: Builder, args: Values) -> None:
        uppers, lowers, blocks, out = args
        for at in (0, 64):
            store(builder, ir.Constant(V_F32, None), plus(builder, out, at))

        def block(index: ir.Value) -> None:
            upper = offset(builder, uppers, index, UPPER_BYTES)
            lower = offset(builder, lowers, index, streams.LOWER_BYTES)
            inner = builder.add(
                _inner_codes(builder, lower), _inner_codes(builder, plus(builder, lower, 64))
            )
            # from their middle inner codes are 1/2 away, outer ones 3/2: squares of 1/4 and 9/4
            twice = builder.shl(inner, constant_splat(1, V_I32))
            squares = builder.sitofp(builder.sub(constant_splat(72, V_I32), twice), V_F32)
            scales = half_lanes(builder, plus(builder, upper, SCALES))
            power = builder.fmul(scales, scales)
            open_ = fma(builder, power, squares, load(builder, out, V_F32))
            store(builder, open_, out)
            at = plus(builder, out, 64)
            store(builder, builder.fadd(load(builder, at, V_F32), power), at)

        repeat(builder, blocks, block)

    return function("tile_norms", 4, emit)


def _inner_codes(builder: Builder, plane: ir.Value) -> ir.Value:
    """How many of a row's sixteen codes of two bits are 1 or 2."""
    codes = load(builder, plane, V_I32)
    differ = builder.xor(codes, builder.lshr(codes, constant_splat(1, V_I32)))
    return call(
        builder, "llvm.ctpop.v16i32", V_I32, builder.and_(differ, constant_splat(0x55555555, V_I32))
    )


@inline
def rounding_part(blocks):
    """Of a reach, what rounding may have to do with it, in a row of so many blocks, at most.

    A code leaves at least 1/2 open.
    """
    return np.float32(rounding(blocks) * MOST_CODES / (0.5 * math.sqrt(layout.BLOCK)))


@inline
def rounding(blocks):
    """Of what a sum of so many blocks adds up, what it may be away from the true one; twice."""
    return (blocks + 16) * 2.0**-22


def reaches():
    """words: upper tiles, lower tiles, blocks, tiles, tiles_per_task, factor, out.

    out: f32 of each row: so far, times the size of the activations, may a logit lie from that of
    the upper codes, at most. Cauchy and Schwarz say so of what the codes leave open; the rest is
    for the rounding of both sums.
    """
    norms = _tile_norms()

    def run(args, task, scratch):
        blocks, per_task = load_i64(args + 16), load_i64(args + 32)
        factor = abs(load_f32(args + 40))
        first = task * per_task
        for tile in range(first, min(first + per_task, load_i64(args + 24))):
            upper = load_i64(args) + tile * blocks * UPPER_BYTES
            lower = load_i64(args + 8) + tile * blocks * streams.LOWER_BYTES
            norms(upper, lower, blocks, scratch)
            for lane in range(16):
                left_open = math.sqrt(load_f32(scratch + 4 * lane)) * np.float32(1.0001)
                size = math.sqrt(load_f32(scratch + 64 + 4 * lane))
                reach = factor * (left_open + rounding(blocks) * MOST_CODES * size)
                store_f32(load_i64(args + 48) + 64 * tile + 4 * lane, np.float32(reach))

    return run
