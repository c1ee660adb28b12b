"""Kernels of `largest` for Numba: the maximum of every block, then the best ones block by block.

Blocks lie at absolute positions of a row, so tasks decide nothing but who looks where.
"""

from __future__ import annotations

import numba
import numpy as np

from turbodflash_kernels._cpu.simd import (
    load_f32,
    load_i64,
    store_f32,
    store_i32,
    vatmost,
    vbelow,
    vfind,
    vless,
    vload,
    vload_partial,
    vmax,
    vmax_of,
    vsplat,
)

LEAST = np.float32(-np.inf)

inline = numba.njit(error_model="numpy")


def build(name, *spec):
    return {"maxima": maxima, "choose": choose}[name](*spec)


@inline
def numbers(x, i, end):
    """Numbers i..i+15 of a row, -inf from its end on. NaN may be among them."""
    if i + 16 <= end:
        return vload(x + 4 * i)
    return vbelow(end - i, vload_partial(x + 4 * i, end - i), vsplat(LEAST))


def maxima(size: int, blocks_per_task: int):
    """words: x, x_stride, width, rows, maxima, maxima_stride. Tasks run over rows first: those who
    made the first columns of all of them look at these.

    size: numbers of a block. A row of maxima is filled up with -inf to a multiple of sixteen.
    """

    @inline
    def most_of(x, start, end):
        whole = end - (end - start) % 16
        most = vsplat(LEAST)
        for i in range(start, whole, 16):
            most = vmax(vload(x + 4 * i), most)  # of a NaN and a number, the number
        if whole < end:
            most = vmax(numbers(x, whole, end), most)
        return vmax_of(most)

    def kernel(args, task, scratch):
        width, rows = load_i64(args + 16), load_i64(args + 24)
        x = load_i64(args) + task % rows * load_i64(args + 8)
        out = load_i64(args + 32) + task % rows * load_i64(args + 40)
        first = task // rows * blocks_per_task
        last = min(first + blocks_per_task, (width + 16 * size - 1) // (16 * size) * 16)
        for block in range(first, last):
            start = min(block * size, width)
            store_f32(out + 4 * block, most_of(x, start, min(start + size, width)))

    return kernel


@inline
def largest_block(maxima, blocks):
    """The first block whose maximum is the largest; -1 if nothing is above -inf."""
    most = vsplat(LEAST)
    for block in range(0, blocks, 16):
        most = vmax(vload(maxima + 4 * block), most)
    best = vmax_of(most)
    if best == LEAST:
        return -1
    for block in range(0, blocks, 16):
        lane = vfind(vload(maxima + 4 * block), best)
        if lane < 16:
            return block + lane
    return -1


@inline
def first_equal(x, start, end, value):
    """Where `value` first stands from `start` on."""
    for i in range(start, end, 16):
        lane = vfind(numbers(x, i, end), value)
        if lane < 16:
            return i + lane
    return -1


@inline
def most_after(x, start, end, value, id):
    """The largest of a block's numbers that come after number `id`, which is `value`, in order."""
    most = vsplat(LEAST)
    for i in range(start, end, 16):
        v = numbers(x, i, end)
        before, behind = vless(v, value), vatmost(v, value)
        most = vmax(vbelow(id + 1 - i, before, behind), most)
    return vmax_of(most)


@inline
def first_least(x, start):
    """The first number from `start` on that counts as -inf; there is one."""
    while load_f32(x + 4 * start) > LEAST:
        start += 1
    return start


def choose(size: int):
    """words: x, x_stride, width, maxima, maxima_stride, count, values, ids. One task a row.

    A block's maximum becomes that of what is left of it whenever one of its numbers is chosen.
    """

    def kernel(args, task, scratch):
        x = load_i64(args) + task * load_i64(args + 8)
        width, count = load_i64(args + 16), load_i64(args + 40)
        maxima = load_i64(args + 24) + task * load_i64(args + 32)
        values = load_i64(args + 48) + 4 * task * count
        ids = load_i64(args + 56) + 4 * task * count
        blocks = (width + size - 1) // size
        last, id = LEAST, -1
        for place in range(count):
            block = largest_block(maxima, blocks)
            if block < 0:
                id = first_least(x, 0 if last > LEAST else id + 1)
                last = LEAST
                store_f32(values + 4 * place, LEAST)
            else:
                start, end = block * size, min(block * size + size, width)
                best = load_f32(maxima + 4 * block)
                id = first_equal(x, max(start, id + 1) if best == last else start, end, best)
                last = best
                store_f32(values + 4 * place, load_f32(x + 4 * id))
                store_f32(maxima + 4 * block, most_after(x, start, end, best, id))
            store_i32(ids + 4 * place, id)

    return kernel
