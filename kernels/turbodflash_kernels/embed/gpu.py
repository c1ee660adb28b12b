"""One block decodes a piece of one row."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import triton
import triton.language as tl

from turbodflash_kernels._gpu import layout

if TYPE_CHECKING:
    from turbodflash_kernels._gpu.device import GpuDevice
    from turbodflash_kernels._gpu.weight import GpuWeight
    from turbodflash_kernels.op import Array

PIECE = 1024  # inputs


@triton.jit(do_not_specialize=["tokens_stride"])
def _dense_rows(
    tokens, values, unit, out, tokens_stride, inputs, columns, scale, PIECE: tl.constexpr
):
    i_out = tl.program_id(0).to(tl.int64)
    row = tl.load(tokens + i_out * tokens_stride).to(tl.int64)
    i_k = tl.program_id(1) * PIECE + tl.arange(0, PIECE)
    inside = i_k < columns
    b_w = tl.load(values + row * inputs + i_k, mask=inside, other=0.0).to(tl.float32)
    b_w *= tl.load(unit + row)
    tl.store(out + i_out * columns + i_k, b_w * scale, mask=inside)


@triton.jit(do_not_specialize=["tokens_stride"])
def _rows(
    tokens,
    words,
    high,
    scales,
    unit,
    out,
    tokens_stride,
    sub_tiles,
    columns,
    scale,
    PIECE: tl.constexpr,
    INPUTS: tl.constexpr,
    SCALES: tl.constexpr,
    BITS: tl.constexpr,
    BLOCK: tl.constexpr,
    ZERO: tl.constexpr,
    AFFINE: tl.constexpr,
    TABLE: tl.constexpr,
):
    i_out = tl.program_id(0).to(tl.int64)
    row = tl.load(tokens + i_out * tokens_stride).to(tl.int64)
    i_k = tl.program_id(1) * PIECE + tl.arange(0, PIECE)
    inside = i_k < columns
    i_row = ((row // 32) * sub_tiles + i_k // INPUTS) * 32 + row % 32
    plane, half = i_k % INPUTS // 32, i_k % 2
    i_word = i_row * 16 + i_k % 32 // 2
    PLANES: tl.constexpr = INPUTS // 32
    BASE: tl.constexpr = 16 // PLANES
    code = tl.load(words + i_word, mask=inside, other=0) >> (16 * half + BASE * plane)
    code &= (1 << BASE) - 1
    if high is not None:
        i_high = (((row // 32) * ((columns + 255) // 256) + i_k // 256) * 32 + row % 32) * 16
        above = tl.load(high + i_high + i_k % 32 // 2, mask=inside, other=0).to(tl.int32)
        group = i_k % 256 // 32 * BASE // 8
        lowest = i_k % 256 // 32 * BASE % 8
        if BITS == 6:
            lowest += 2 * (group % 2) + 8 * (group // 2) + 16 * half
        else:
            lowest += group + 8 * half
        code |= ((above >> lowest) & ((1 << (BITS - BASE)) - 1)) << BASE
    if len(TABLE):
        first = tl.where(code < 4, TABLE[0], TABLE[1])
        word = tl.where(code < 8, first, tl.where(code < 12, TABLE[2], TABLE[3]))
        code = ((word >> (8 * (code & 3))) & 0xFF) - 128
    value = (code - ZERO).to(tl.float32)
    factors = scales.to(tl.pointer_type(tl.float16)) + i_row * (2 * SCALES)
    block = i_k % INPUTS // BLOCK
    if AFFINE:
        value *= tl.load(factors + 2 * block, mask=inside, other=0.0).to(tl.float32)
        value += tl.load(factors + 2 * block + 1, mask=inside, other=0.0).to(tl.float32)
    else:
        value *= tl.load(factors + block, mask=inside, other=0.0).to(tl.float32)
    value *= tl.load(unit + row)
    tl.store(out + i_out * columns + i_k, value * scale, mask=inside)


def refuse(device: GpuDevice, *, table: GpuWeight, scale: float) -> str | None:
    if len(table.parts) != 1:
        return f"the table has {len(table.parts)} parts of different formats"
    return None


def bind(device: GpuDevice, *, table: GpuWeight, scale: float) -> Callable[[Array], Array]:
    part = table.parts[0]
    format, arrays = part.format, part.arrays

    def embed(tokens: Array) -> Array:
        n = tokens.shape[0]
        out = device.scratch((n, table.cols), np.float32)
        grid = (n, triton.cdiv(table.cols, PIECE))
        sizes = (table.cols, float(scale))
        stride = tokens.stride(0)
        if format.dense:
            device.launch(
                _dense_rows,
                grid,
                *(tokens, arrays.values, arrays.unit, out, stride, part.inputs, *sizes),
                warps=4,
                stages=1,
                PIECE=PIECE,
            )
            return out
        shape = layout.coding(format)
        device.launch(
            _rows,
            grid,
            *(tokens, arrays.words, arrays.high, arrays.scales, arrays.unit, out, stride),
            *(arrays.words.shape[1], *sizes),
            warps=4,
            stages=1,
            PIECE=PIECE,
            INPUTS=shape.inputs,
            SCALES=shape.scales,
            BITS=format.bits,
            BLOCK=format.block,
            ZERO=format.zero,
            AFFINE=format.affine,
            TABLE=layout.table_words(format),
        )
        return out

    return embed
