"""Kernels of `top_logits` for Numba, for a matrix in two streams (see _cpu/streams.py).

What the upper bits say of all logits is there. Of those that may be among the largest the lower
bits are asked, and the few that still may be are computed as `linear` does it.
"""

from __future__ import annotations

import math

import numba
import numpy as np

from turbodflash_kernels._cpu import layout, streams, tiles
from turbodflash_kernels._cpu.rows import MIDDLE, UNIT
from turbodflash_kernels._cpu.simd import (
    load_f32,
    load_i8,
    load_i32,
    load_i64,
    store_f32,
    vallless,
    vfma,
    vload,
    vsplat,
    vstore,
)
from turbodflash_kernels._cpu.stream_kernels import UPPER_BYTES, rounding_part
from turbodflash_kernels.linear.cpu import prepared

LEAST = np.float32(-np.inf)
AHEAD = 1536  # what is asked for must lie in the same tile: the next one may be anywhere

inline = numba.njit(error_model="numpy")


def build(name, *spec):
    return {"floors": floors, "sift": sift}[name](*spec)


def _tile(view: streams.View, isa: str):
    """tile(args, tile, line, scratch): what a view gives of a tile's logits, f32[16] at scratch.

    words, from args on: upper tiles, lower tiles, blocks, row_stride, block_stride, factor.
    line: of the row's first block.
    """
    inner = tiles.quantised_tile(view, isa, 1)

    @inline
    def product(args, tile, line, scratch):
        blocks = load_i64(args + 16)
        upper = load_i64(args) + tile * blocks * UPPER_BYTES
        lower = load_i64(args + 8) + tile * blocks * streams.LOWER_BYTES
        row_stride, block_stride = load_i64(args + 24), load_i64(args + 32)
        inner(upper, lower, line, row_stride, block_stride, blocks, scratch, 64, AHEAD)
        vstore(scratch, vload(scratch) * vsplat(load_f32(args + 40)))

    return product


@inline
def size_of(line, block_stride, blocks):
    """The Euclidean norm of a row of activations, as integers stand for them; a little more."""
    total = 0.0
    for _ in range(blocks):
        unit, middle = np.float64(load_f32(line + UNIT)), np.float64(load_f32(line + MIDDLE))
        for i in range(layout.BLOCK):
            number = unit * load_i8(line + i) + middle
            total += number * number
        line += block_stride
    return np.float32(math.sqrt(total) * 1.0001)


def floors(isa: str):
    """words: as for `_tile`, lines, ids, count, logits, logits_stride, reaches, floors, sizes,
    ids_per_task. Tasks run over a row's ids first.

    logits: f32 of whole tiles, what upper bits say of them. floors: f32[n, count], what the logits
    of these ids cannot be below; -inf, which excludes none, where numbers overflow. sizes: f32[n],
    of the rows' activations.
    """
    rest = _tile(streams.LOWER_ALONE, isa)

    def kernel(args, task, scratch):
        count, blocks, per_task = load_i64(args + 64), load_i64(args + 16), load_i64(args + 112)
        per_row = (count + per_task - 1) // per_task
        row, first = task // per_row, task % per_row * per_task
        line = prepared(load_i64(args + 48), scratch) + row * load_i64(args + 24)
        logits = load_i64(args + 72) + row * load_i64(args + 80)
        ids = load_i64(args + 56) + 4 * row * count
        results = load_i64(args + 96) + 4 * row * count
        size = size_of(line, load_i64(args + 32), blocks)
        unsure = rounding_part(blocks) * size
        for i in range(first, min(first + per_task, count)):
            id = load_i32(ids + 4 * i)
            rest(args, id // 16, line, scratch)
            floor = load_f32(logits + 4 * id) + load_f32(scratch + 4 * (id % 16))
            floor -= load_f32(load_i64(args + 88) + 4 * id) * unsure
            store_f32(results + 4 * i, floor if abs(floor) < -LEAST else LEAST)
        if first == 0:
            store_f32(load_i64(args + 104) + 4 * row, size)

    return kernel


def sift(isa: str):
    """words: as for `floors` up to sizes, tiles_per_task, tiles, rows. Tasks run over rows first:
    those who made the first columns of all of them look at these.

    A row's logits become what they are, or -inf where `count` others are certainly larger: none of
    so many is below the least of the row's floors.
    """
    rest, whole = _tile(streams.LOWER_ALONE, isa), _tile(streams.BOTH, isa)

    @inline
    def least(floors, count):
        lowest = load_f32(floors)
        for i in range(1, count):
            lowest = min(lowest, load_f32(floors + 4 * i))
        return lowest

    def kernel(args, task, scratch):
        count, per_task, last = load_i64(args + 64), load_i64(args + 112), load_i64(args + 120)
        row, first = task % load_i64(args + 128), task // load_i64(args + 128) * per_task
        line = prepared(load_i64(args + 48), scratch) + row * load_i64(args + 24)
        logits = load_i64(args + 72) + row * load_i64(args + 80)
        reaches = load_i64(args + 88)
        floor = least(load_i64(args + 96) + 4 * row * count, count)
        size = vsplat(load_f32(load_i64(args + 104) + 4 * row))
        unsure = vsplat(rounding_part(load_i64(args + 16)))
        for tile in range(first, min(first + per_task, last)):
            at = logits + 64 * tile
            reach = vload(reaches + 64 * tile) * size
            certain = vallless(vload(at) + reach, floor)
            if not certain:
                rest(args, tile, line, scratch)
                certain = vallless(vfma(reach, unsure, vload(at) + vload(scratch)), floor)
            if certain:
                vstore(at, vsplat(LEAST))
            else:
                whole(args, tile, line, scratch)
                vstore(at, vload(scratch))

    return kernel
