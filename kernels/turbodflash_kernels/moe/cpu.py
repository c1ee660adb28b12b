"""Kernels of `moe` for Numba: choose experts, group rows by them, multiply, add up.

A pair is a row and one of its experts: pair `row * used + slot`. Grouped, pairs have positions:
those of one expert stand side by side, in the order of their rows. Products of an expert are made
by `linear`'s own kernel, which is called by address: a row has the bits it has in a matrix of its
own, whatever rows have chosen the same expert.
"""

from __future__ import annotations

import numba
import numpy as np

from turbodflash_kernels._cpu import layout
from turbodflash_kernels._cpu.atomics import call_kernel
from turbodflash_kernels._cpu.route_kernels import GROUP_BYTES, group, route
from turbodflash_kernels._cpu.simd import (
    load_f32,
    load_i32,
    load_i64,
    store_f32,
    store_i32,
    store_i64,
    vfma,
    vload,
    vload_partial,
    vsplat,
    vstore,
)

PRODUCT_WORDS = layout.PRIVATE + layout.PRIVATE_BYTES
"""Of scratch: behind activations that only a thread reads."""
ONE = 0x3F800000  # as a float32
ROWS = 32  # whose codes stay in the second-level cache while an expert's tiles pass by

inline = numba.njit(error_model="numpy")


def build(name, *spec):
    kernels = {
        "route": route,
        "group": group,
        "gather": gather,
        "rescale": rescale,
        "product": product,
        "combine": combine,
    }
    return kernels[name](*spec)


@inline
def copy(source, to, size):
    """A multiple of four bytes."""
    whole = size - size % 64
    for i in range(0, whole, 64):
        vstore(to + i, vload(source + i))
    for i in range(whole, size, 4):
        store_i32(to + i, load_i32(source + i))


def gather():
    """words: order, pairs, used, pairs_per_task, source, its stride, target, its stride, bytes of a
    row. Rows go to the positions of their pairs.
    """

    def kernel(args, task, scratch):
        order, pairs, used = load_i64(args), load_i64(args + 8), load_i64(args + 16)
        first = task * load_i64(args + 24)
        for place in range(first, min(first + load_i64(args + 24), pairs)):
            row = load_i32(order + 4 * place) // used
            source = load_i64(args + 32) + row * load_i64(args + 40)
            to = load_i64(args + 48) + place * load_i64(args + 56)
            copy(source, to, load_i64(args + 64))

    return kernel


def rescale():
    """words: order, chosen, scale, x, x_stride, count. A task is a position.

    The row there is multiplied by the scale of its expert.
    """

    def kernel(args, task, scratch):
        pair = load_i32(load_i64(args) + 4 * task)
        scale = load_f32(load_i64(args + 16) + 4 * load_i32(load_i64(args + 8) + 4 * pair))
        x, count = load_i64(args + 24) + task * load_i64(args + 32), load_i64(args + 40)
        for i in range(count):
            store_f32(x + 4 * i, load_f32(x + 4 * i) * scale)

    return kernel


def product(quantised: bool):
    """words: kernel, groups, order, used, weights, tile_bytes, tiles, rows, blocks, out,
    out_stride, inputs, input_stride, more, block_stride, bound, tasks, tiles_per_task.

    kernel: `linear`'s. weights: of expert 0; `tiles` and `rows` of weights are one expert's.
    inputs, input_stride, more, block_stride: rows of lines (see rows.py), 0 if every thread has its
    own; or x, and `more` inputs beyond whole blocks. order: 0 = inputs stand at the positions of
    pairs; else as rows do, of which there are two at most.
    tasks: of so many, each has its share of the tiles of all groups, in a row. 0: a task has
    `tiles_per_task` of one of at most `bound` groups, and tasks run over groups first.
    """

    @inline
    def place_inputs(args, first, scratch, words):
        row, stride = first, load_i64(args + 96)
        if load_i64(args + 16) != 0:
            row = load_i32(load_i64(args + 16) + 4 * first) // load_i64(args + 24)
        inputs = load_i64(args + 88)
        if quantised and inputs == 0:
            inputs = scratch + layout.PRIVATE
        store_i64(words + 96, inputs + row * stride)

    @inline
    def multiply(args, group, tile, tiles, scratch):
        """Tiles `tile` to tile + tiles - 1 of a group's expert, times its rows."""
        words = scratch + PRODUCT_WORDS
        expert, first, count = load_i32(group), load_i32(group + 4), load_i32(group + 8)
        tile_bytes, out_stride = load_i64(args + 40), load_i64(args + 80)
        at = expert * load_i64(args + 48) + tile
        store_i64(words, load_i64(args + 32) + at * tile_bytes)
        store_i64(words + 8, tile_bytes)
        store_i64(words + 16, tiles)
        store_i64(words + 24, tiles)
        store_i64(words + 48, load_i64(args + 64))
        store_i64(words + 64, out_stride)
        store_i64(words + 72, load_i64(args + 56) - 16 * tile)
        store_i64(words + 80, 0)
        store_i64(words + 88, 0)
        store_i64(words + 104, load_i64(args + 96))
        store_i64(words + 112, load_i64(args + 104))
        store_i64(words + 120, load_i64(args + 112))
        store_i64(words + 128, ONE)
        for row in range(first, first + count, ROWS):
            rows = min(first + count - row, ROWS)
            store_i64(words + 32, rows)
            store_i64(words + 40, rows)
            store_i64(words + 56, load_i64(args + 72) + row * out_stride + 64 * tile)
            place_inputs(args, row, scratch, words)
            call_kernel(load_i64(args), words, 0, scratch)

    def kernel(args, task, scratch):
        groups, tiles = load_i64(args + 8), load_i64(args + 48)
        active, tasks = load_i32(groups), load_i64(args + 128)
        if tasks == 0:
            bound, per_task = load_i64(args + 120), load_i64(args + 136)
            group, tile = task % bound, task // bound * per_task
            if group < active:
                multiply(args, groups + 4 + GROUP_BYTES * group, tile,
                         min(per_task, tiles - tile), scratch)  # fmt: skip
            return
        pairs = (active * tiles + 1) // 2  # of tiles, which come abreast
        at = 2 * (task * pairs // tasks)
        end = min(2 * ((task + 1) * pairs // tasks), active * tiles)
        while at < end:
            group, tile = at // tiles, at % tiles
            some = min(tiles - tile, end - at)
            multiply(args, groups + 4 + GROUP_BYTES * group, tile, some, scratch)
            at += some

    return kernel


def combine():
    """words: results, results_stride, places, weights, used, residual, residual_stride, out,
    out_stride, width, columns_per_task, tasks_per_row.

    The results of a row's pairs, weighted, in the order of its experts; then the residual.
    """

    def kernel(args, task, scratch):
        per_row, columns = load_i64(args + 88), load_i64(args + 80)
        row, first = task // per_row, task % per_row * columns
        used, width = load_i64(args + 32), load_i64(args + 72)
        places = load_i64(args + 16) + 4 * row * used
        weights = load_i64(args + 24) + 4 * row * used
        residual = load_i64(args + 40)
        if residual != 0:
            residual += row * load_i64(args + 48)
        out = load_i64(args + 56) + row * load_i64(args + 64)
        last = min(first + columns, width)
        for i in range(first, last, 16):
            lanes = min(last - i, 16)
            total = vsplat(np.float32(0.0))
            for slot in range(used):
                at = load_i64(args) + load_i32(places + 4 * slot) * load_i64(args + 8)
                weight = vsplat(load_f32(weights + 4 * slot))
                total = vfma(weight, vload_partial(at + 4 * i, lanes), total)
            if residual != 0:
                total = total + vload_partial(residual + 4 * i, lanes)
            if lanes == 16:
                vstore(out + 4 * i, total)
            else:
                vstore(scratch, total)
                copy(scratch, out + 4 * i, 4 * lanes)

    return kernel
