"""Kernels of `linear` for Numba: prepare the activations, then multiply tile by tile.

Each function here returns a kernel (args, task, scratch): int64 words at address args, the number
of the task, and memory of the calling thread. A task's results never depend on the other tasks.
"""

from __future__ import annotations

import numba
import numpy as np

from turbodflash_kernels._cpu import activations, dense_tiles, layout, streams
from turbodflash_kernels._cpu.activations import quantise_blocks
from turbodflash_kernels._cpu.curve_kernels import ACTIVATIONS
from turbodflash_kernels._cpu.machines import MACHINES
from turbodflash_kernels._cpu.memory import LINE
from turbodflash_kernels._cpu.norm_kernels import inverse_rms
from turbodflash_kernels._cpu.row_kernels import multiplier
from turbodflash_kernels._cpu.simd import (
    load_f32,
    load_i64,
    store_f32,
    vload,
    vload_partial,
    vsplat,
    vstore,
    vsum,
)
from turbodflash_kernels._cpu.streams import View
from turbodflash_kernels._cpu.tiles import RESULT_BYTES, RESULTS_AT

inline = numba.njit(error_model="numpy", forceinline=True)


@inline
def prepared(lines, scratch):
    """Where activations lie; if there are no common ones, the thread has made its own."""
    return lines if lines != 0 else scratch + layout.PRIVATE


def prepare(prologue: str, quantised: bool, isa: str):
    """Rows of activations, normed or gated, as int8 codes or as they are.

    words: x, x_stride, k, norm_weight, eps_bits_address, rows_per_task, n,
           lines, row_bytes, row_stride, block_stride, panel  (quantised; lines 0: private ones)
           out, out_stride                                    (not quantised)

    Lines (see rows.py) of a panel of rows lie row_stride and block_stride apart; panel p begins
    p * panel * row_bytes behind the first.
    """
    normed, gated = prologue == "norm", prologue in ("silu", "gelu")
    activate = ACTIVATIONS[prologue if gated else "silu"]

    @inline
    def value(x, i, k, norm, factor):
        v = vload(x + 4 * i)
        if normed:
            v = v * vsplat(factor) * vload(norm + 4 * i)
        if gated:
            v = activate(v) * vload(x + 4 * (k + i))
        return v

    @inline
    def quantise_some(x, i, k, norm, factor, scratch, lines, apart):
        """The values from i on, up to as many as are quantised together."""
        count = min(k - i, activations.VALUES)
        for j in range(0, count, 16):
            vstore(scratch + 4 * j, value(x, i + j, k, norm, factor))
        if count == activations.VALUES:
            quantise_blocks(scratch, lines, apart)
            return
        for j in range(count, activations.VALUES, 16):
            vstore(scratch + 4 * j, vsplat(np.float32(0.0)))
        all_lines = scratch + 4 * activations.VALUES
        quantise_blocks(scratch, all_lines, LINE)
        for block in range(count // layout.BLOCK):
            vstore(lines + block * apart, vload(all_lines + LINE * block))

    def quantise(args, task, scratch):
        x_stride, k, norm = load_i64(args + 8), load_i64(args + 16), load_i64(args + 24)
        eps = load_f32(args + 32)
        first = task * load_i64(args + 40)
        rows = load_i64(args + 48)
        last = min(first + load_i64(args + 40), rows)
        all_lines, row_bytes = prepared(load_i64(args + 56), scratch), load_i64(args + 64)
        row_stride, block_stride = load_i64(args + 72), load_i64(args + 80)
        panel = load_i64(args + 88)
        for row in range(first, last):
            x = load_i64(args) + row * x_stride
            place = row % panel
            lines = all_lines + (row - place) * row_bytes + place * row_stride
            factor = inverse_rms(x, k, eps) if normed else np.float32(1.0)
            for i in range(0, k, activations.VALUES):
                block = lines + i // layout.BLOCK * block_stride
                quantise_some(x, i, k, norm, factor, scratch, block, block_stride)

    def keep(args, task, scratch):
        x_stride, k, norm = load_i64(args + 8), load_i64(args + 16), load_i64(args + 24)
        eps = load_f32(args + 32)
        first = task * load_i64(args + 40)
        last = min(first + load_i64(args + 40), load_i64(args + 48))
        for row in range(first, last):
            x = load_i64(args) + row * x_stride
            out = load_i64(args + 56) + row * load_i64(args + 64)
            factor = inverse_rms(x, k, eps) if normed else np.float32(1.0)
            rest = k % 16
            for i in range(0, k - rest, 16):
                vstore(out + 4 * i, value(x, i, k, norm, factor))
            for i in range(k - rest, k):
                v = load_f32(x + 4 * i)
                if normed:
                    v = v * factor * load_f32(norm + 4 * i)
                if gated:
                    v = vsum(activate(vload_partial(x + 4 * i, 1))) * load_f32(x + 4 * (k + i))
                store_f32(out + 4 * i, v)

    return quantise if quantised else keep


@inline
def finish(out, stride, rows, lanes, results, factor, bias, residual):
    """Results of a tile, f32 [rows, 16], times factor, go to out, bias and residual added."""
    for r in range(rows):
        at, result = out + r * stride, results + 64 * r
        if lanes == 16:
            v = vload(result) * vsplat(factor)
            if bias != 0:
                v = v + vload(bias)
            if residual != 0:
                v = v + vload(residual + r * stride)
            vstore(at, v)
        else:
            for lane in range(lanes):
                one = load_f32(result + 4 * lane) * factor
                if bias != 0:
                    one = one + load_f32(bias + 4 * lane)
                if residual != 0:
                    one = one + load_f32(residual + r * stride + 4 * lane)
                store_f32(at + 4 * lane, one)


@inline
def share(args, task):
    """The tiles, and the rows of activations, that a task of a product is about."""
    n_tiles, per_task = load_i64(args + 16), load_i64(args + 24)
    chunks = (n_tiles + per_task - 1) // per_task
    first_tile, first = task % chunks * per_task, task // chunks * load_i64(args + 40)
    last = min(first + load_i64(args + 40), load_i64(args + 32))
    return first_tile, min(first_tile + per_task, n_tiles), first, last


@inline
def put(args, tile, row, rows, results):
    """Some rows of a tile's results, f32 [rows, 16], where the words of a product want them."""
    out_stride, bias, residual = load_i64(args + 64), load_i64(args + 80), load_i64(args + 88)
    at = row * out_stride + 64 * tile
    lanes = min(load_i64(args + 72) - 16 * tile, 16)
    if bias != 0:
        bias += 64 * tile
    if residual != 0:
        residual += at
    out, factor = load_i64(args + 56) + at, load_f32(args + 128)
    finish(out, out_stride, rows, lanes, results, factor, bias, residual)


def product_quantised(view: View, isa: str):
    """words: weights, tile_bytes, tiles, tiles_per_task, n, rows_per_task, blocks, out, out_stride,
    weight_rows, bias, residual, lines, row_bytes, row_stride, block_stride, factor, lower.
    Tasks run over tiles first, then over activation rows, which begin with a panel.

    lower: the second stream of a matrix that has two.
    """
    multiply, abreast = multiplier(view, isa), MACHINES[isa].abreast

    def product(args, task, scratch):
        first_tile, last_tile, first, last = share(args, task)
        blocks, tile_bytes, rows = load_i64(args + 48), load_i64(args + 8), last - first
        row_stride, block_stride = load_i64(args + 112), load_i64(args + 120)
        lines = prepared(load_i64(args + 96), scratch) + first * load_i64(args + 104)
        for some in range(first_tile, last_tile, abreast):
            count = min(abreast, last_tile - some)
            weights = load_i64(args) + some * tile_bytes
            lower = load_i64(args + 136) + some * blocks * streams.LOWER_BYTES
            multiply(weights, (count - 1) * tile_bytes, lower, lines, row_stride, block_stride,
                     blocks, rows, scratch, count * tile_bytes)  # fmt: skip
            for t in range(count):
                put(args, some + t, first, rows, scratch + RESULTS_AT + t * RESULT_BYTES)

    return product


def product_dense(kind: str):
    """words: as product_quantised up to residual, then x, stride, rest: the number of inputs beyond
    whole blocks, none, factor.
    """
    tile1, tile4 = (dense_tiles.dense_tile(kind, rows) for rows in (1, 4))

    def product(args, task, scratch):
        first_tile, last_tile, first, last = share(args, task)
        blocks, out_stride = load_i64(args + 48), load_i64(args + 64)
        bias0, residual0 = load_i64(args + 80), load_i64(args + 88)
        factor = load_f32(args + 128)
        stride, rest = load_i64(args + 104), load_i64(args + 112)
        for tile in range(first_tile, last_tile):
            weights = load_i64(args) + tile * load_i64(args + 8)
            lanes = min(load_i64(args + 72) - 16 * tile, 16)
            bias = bias0 + 64 * tile if bias0 != 0 else 0
            row = first
            while row < last:
                rows = 4 if last - row >= 4 else 1
                x = load_i64(args + 96) + row * stride
                out = load_i64(args + 56) + row * out_stride + 64 * tile
                residual = residual0 + row * out_stride + 64 * tile if residual0 != 0 else 0
                if rows == 4:
                    tile4(weights, x, stride, blocks, rest, scratch, 64)
                else:
                    tile1(weights, x, stride, blocks, rest, scratch, 64)
                finish(out, out_stride, rows, lanes, scratch, factor,
                       bias, residual)  # fmt: skip
                row += rows

    return product


def build(name, *spec):
    kernels = {
        "prepare": prepare,
        "product_quantised": product_quantised,
        "product_dense": product_dense,
    }
    return kernels[name](*spec)
