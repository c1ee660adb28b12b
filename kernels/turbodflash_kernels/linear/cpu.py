"""Kernels of `linear` for Numba: prepare the activations, then multiply tile by tile.

Each function here returns a kernel (args, task, scratch): int64 words at address args, the number
of the task, and memory of the calling thread. A task's results never depend on the other tasks.
"""

from __future__ import annotations

import math

from turbodflash_kernels._cpu import layout, tiles
from turbodflash_kernels._cpu.simd import (
    load_f32,
    load_i64,
    store_f32,
    store_i32,
    vabs,
    vexp,
    vfma,
    vload,
    vload_partial,
    vmax,
    vmax_of,
    vround,
    vsplat,
    vstore,
    vstore_codes,
    vsum,
    vsum_i32,
)
from turbodflash_kernels.planar import Format

import numba
import numpy as np

inline = numba.njit(error_model="numpy", inline="never")
WHOLE = 16  # activation rows whose weights are worth a second pass over the tile


@inline
def silu(x):
    return x / (vsplat(np.float32(1.0)) + vexp(vsplat(np.float32(0.0)) - x))


@inline
def gelu(x):
    """The tanh form: x * sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3)."""
    cubed = x * x * x
    u = vfma(vsplat(np.float32(0.044715)), cubed, x) * vsplat(np.float32(1.5957691216057308))
    return x / (vsplat(np.float32(1.0)) + vexp(vsplat(np.float32(0.0)) - u))


def prepare(prologue: str, quantised: bool):
    """Rows of activations, normed or gated, as int8 codes or as they are.

    words: x, x_stride, k, norm_weight, eps_bits_address, rows_per_task, n,
           codes, code_stride, scales, sums, stride, halves    (quantised)
           out, out_stride                                      (not quantised)
    """
    normed, gated = prologue == "norm", prologue in ("silu", "gelu")
    activate = gelu if prologue == "gelu" else silu

    @inline
    def inverse_rms(x, k, eps):
        total = vsplat(np.float32(0.0))
        for i in range(0, k - 15, 16):
            v = vload(x + 4 * i)
            total = vfma(v, v, total)
        rest = k % 16
        if rest > 0:
            v = vload_partial(x + 4 * (k - rest), rest)
            total = vfma(v, v, total)
        return np.float32(1.0) / np.float32(math.sqrt(vsum(total) / np.float32(k) + eps))

    @inline
    def value(x, i, k, norm, factor):
        v = vload(x + 4 * i)
        if normed:
            v = v * vsplat(factor) * vload(norm + 4 * i)
        if gated:
            v = activate(v) * vload(x + 4 * (k + i))
        return v

    def quantise(args, task, scratch):
        x_stride, k, norm = load_i64(args + 8), load_i64(args + 16), load_i64(args + 24)
        eps = load_f32(args + 32)
        first = task * load_i64(args + 40)
        last = min(first + load_i64(args + 40), load_i64(args + 48))
        stride = load_i64(args + 88)
        for row in range(first, last):
            x = load_i64(args) + row * x_stride
            codes = load_i64(args + 56) + row * load_i64(args + 64)
            scales = load_i64(args + 72) + row * stride
            sums = load_i64(args + 80) + row * stride
            halves = load_i64(args + 96) + row * 2 * stride
            factor = inverse_rms(x, k, eps) if normed else np.float32(1.0)
            for i in range(0, k, 32):
                low = value(x, i, k, norm, factor)
                high = value(x, i + 16, k, norm, factor)
                largest = vmax_of(vmax(vabs(low), vabs(high)))
                inverse = np.float32(127.0) / largest if largest > 0 else np.float32(0.0)
                low_codes = vround(low * vsplat(inverse))
                high_codes = vround(high * vsplat(inverse))
                vstore_codes(codes + i, low_codes)
                vstore_codes(codes + i + 16, high_codes)
                low_sum, high_sum = vsum_i32(low_codes), vsum_i32(high_codes)
                scale = largest / np.float32(127.0)
                store_f32(scales + i // 8, scale)
                store_f32(sums + i // 8, scale * np.float32(low_sum + high_sum))
                store_i32(halves + i // 4, low_sum)
                store_i32(halves + i // 4 + 4, high_sum)

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
def finish(out, stride, rows, lanes, scratch, bias, residual):
    """Results of a tile: out += bias + residual; a tile cut short is taken from scratch."""
    for r in range(rows):
        at = out + r * stride
        if lanes == 16:
            v = vload(at)
            if bias != 0:
                v = v + vload(bias)
            if residual != 0:
                v = v + vload(residual + r * stride)
            vstore(at, v)
        else:
            for lane in range(lanes):
                one = load_f32(scratch + 64 * r + 4 * lane)
                if bias != 0:
                    one = one + load_f32(bias + 4 * lane)
                if residual != 0:
                    one = one + load_f32(residual + r * stride + 4 * lane)
                store_f32(at + 4 * lane, one)


def product_quantised(fmt: Format, isa: str):
    """words: weights, tile_bytes, tiles, tiles_per_task, n, rows_per_task,
    codes, code_stride, scales, sums, stride, halves, blocks, out, out_stride, weight_rows, bias,
    residual. Tasks run over tiles first, then over activation rows.
    """
    tile1, tile2, tile4 = (tiles.quantised_tile(fmt, isa, rows) for rows in (1, 2, 4))

    def product(args, task, scratch):
        n_tiles, per_task = load_i64(args + 16), load_i64(args + 24)
        chunks = (n_tiles + per_task - 1) // per_task
        first_tile = task % chunks * per_task
        last_tile = min(first_tile + per_task, n_tiles)
        first = task // chunks * load_i64(args + 40)
        last = min(first + load_i64(args + 40), load_i64(args + 32))
        code_stride, stride, blocks = (
            load_i64(args + 56),
            load_i64(args + 80),
            load_i64(args + 96),
        )
        out_stride, bias0, residual0 = (
            load_i64(args + 112),
            load_i64(args + 128),
            load_i64(args + 136),
        )
        for tile in range(first_tile, last_tile):
            weights = load_i64(args) + tile * load_i64(args + 8)
            lanes = min(load_i64(args + 120) - 16 * tile, 16)
            bias = bias0 + 64 * tile if bias0 != 0 else 0
            row = first
            while row < last:
                rows = 4 if last - row >= 4 else (2 if last - row >= 2 else 1)
                codes = load_i64(args + 48) + row * code_stride
                scales = load_i64(args + 64) + row * stride
                sums = load_i64(args + 72) + row * stride
                halves = load_i64(args + 88) + row * 2 * stride
                out = load_i64(args + 104) + row * out_stride + 64 * tile
                residual = residual0 + row * out_stride + 64 * tile if residual0 != 0 else 0
                to, to_stride = (out, out_stride) if lanes == 16 else (scratch, 64)
                if rows == 4:
                    tile4(
                        weights, codes, code_stride, scales, sums, stride, halves, blocks,
                        to, to_stride,
                    )  # fmt: skip
                elif rows == 2:
                    tile2(
                        weights, codes, code_stride, scales, sums, stride, halves, blocks,
                        to, to_stride,
                    )  # fmt: skip
                else:
                    tile1(
                        weights, codes, code_stride, scales, sums, stride, halves, blocks,
                        to, to_stride,
                    )  # fmt: skip
                if lanes < 16 or bias != 0 or residual != 0:
                    finish(out, out_stride, rows, lanes, scratch, bias, residual)
                row += rows

    return product


def product_dense(kind: str):
    """words: as product_quantised, with x, x_stride in place of codes, code_stride, and blocks
    counting whole blocks of 32 inputs; halves holds the number of inputs beyond them.
    """
    tile1, tile4 = (tiles.dense_tile(kind, rows) for rows in (1, 4))

    def product(args, task, scratch):
        n_tiles, per_task = load_i64(args + 16), load_i64(args + 24)
        chunks = (n_tiles + per_task - 1) // per_task
        first_tile = task % chunks * per_task
        last_tile = min(first_tile + per_task, n_tiles)
        first = task // chunks * load_i64(args + 40)
        last = min(first + load_i64(args + 40), load_i64(args + 32))
        stride, rest, blocks = load_i64(args + 56), load_i64(args + 88), load_i64(args + 96)
        out_stride, bias0, residual0 = (
            load_i64(args + 112),
            load_i64(args + 128),
            load_i64(args + 136),
        )
        for tile in range(first_tile, last_tile):
            weights = load_i64(args) + tile * load_i64(args + 8)
            lanes = min(load_i64(args + 120) - 16 * tile, 16)
            bias = bias0 + 64 * tile if bias0 != 0 else 0
            row = first
            while row < last:
                rows = 4 if last - row >= 4 else 1
                x = load_i64(args + 48) + row * stride
                out = load_i64(args + 104) + row * out_stride + 64 * tile
                residual = residual0 + row * out_stride + 64 * tile if residual0 != 0 else 0
                to, to_stride = (out, out_stride) if lanes == 16 else (scratch, 64)
                if rows == 4:
                    tile4(weights, x, stride, blocks, rest, to, to_stride)
                else:
                    tile1(weights, x, stride, blocks, rest, to, to_stride)
                if lanes < 16 or bias != 0 or residual != 0:
                    finish(out, out_stride, rows, lanes, scratch, bias, residual)
                row += rows

    return product


def build(name, *spec):
    kernels = {
        "prepare": prepare,
        "product_quantised": product_quantised,
        "product_dense": product_dense,
    }
    return kernels[name](*spec)
