"""Sums of products with weights that stream past: the loops that kernels of several ops share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import triton
import triton.language as tl

from turbodflash_kernels._gpu import layout
from turbodflash_kernels._gpu.unpack import decoded

if TYPE_CHECKING:
    from turbodflash_kernels._gpu.device import GpuDevice
    from turbodflash_kernels._gpu.weight import PackedPart


@triton.jit
def streamed(
    acc, p_x, m_inside, words, high, scales, i_n, n_inside, sub_tiles, first, last,
    WEIGHTS_FIRST: tl.constexpr, UNROLL: tl.constexpr, INPUTS: tl.constexpr, SCALES: tl.constexpr,
    BITS: tl.constexpr, BLOCK: tl.constexpr, ZERO: tl.constexpr, AFFINE: tl.constexpr,
    TABLE: tl.constexpr, PTX: tl.constexpr,
):  # fmt: skip
    """acc [BM, BN], or [BN, BM], and x @ weights^T over turns first..last-1, of UNROLL sub-tiles.

    p_x: where the rows of x begin, [BM, 1]. i_n: rows of weights, [BN].
    m_inside, n_inside: which of them there are, [BM, 1] and [BN, 1].
    """
    i_tile = (i_n // 32).to(tl.int64) * sub_tiles + first * UNROLL
    i_row = i_n % 32
    i_16 = tl.arange(0, 16)[None, :]
    # with += instead, registers spill at six bits on sm_80 and sm_100
    p_x = p_x + first * (UNROLL * INPUTS) + tl.arange(0, 32)[None, :]
    p_words = words + (i_tile * 512 + i_row * 16)[:, None] + i_16
    p_high = p_words
    if high is not None:  # tiles of 256 inputs
        p_high = high + (i_tile * (INPUTS * 2) + i_row * 16)[:, None] + i_16
    # wider tiles of scales would go through shared memory
    PIECE: tl.constexpr = min(SCALES, 4)
    SCALES_EACH: tl.constexpr = INPUTS // 32 * PIECE // SCALES
    p_scales = scales + (i_tile * (32 * SCALES) + i_row * SCALES)[:, None]
    p_scales += tl.arange(0, PIECE)[None, :]
    for _ in range(first, last):
        for u in tl.static_range(UNROLL):
            b_words = tl.load(p_words + u * 512, mask=n_inside, other=0)
            b_high = b_words
            if high is not None:
                b_high = tl.load(p_high + u * INPUTS // 256 * 512, mask=n_inside, other=0)
            for p in tl.static_range(INPUTS // 32):
                if p % SCALES_EACH == 0:
                    i_piece = u * 32 * SCALES + p // SCALES_EACH * PIECE
                    b_scales = tl.load(p_scales + i_piece, mask=n_inside, other=0)
                b_w = decoded(
                    b_words, b_high, b_scales, u * INPUTS % 256 // INPUTS, p, p % SCALES_EACH,
                    BITS, BLOCK, ZERO, AFFINE, TABLE, PTX,
                )  # fmt: skip
                b_x = tl.load(p_x + (u * INPUTS + p * 32), mask=m_inside, other=0.0)
                if WEIGHTS_FIRST:
                    acc = tl.dot(b_w, tl.trans(b_x), acc)
                else:
                    acc = tl.dot(b_x, tl.trans(b_w), acc)
        p_x += UNROLL * INPUTS
        p_words += UNROLL * 512
        p_high += UNROLL * INPUTS * 2
        p_scales += UNROLL * 32 * SCALES
    return acc


@triton.jit
def streamed_dense(
    acc, p_x, m_inside, p_w, n_inside, first, last, WEIGHTS_FIRST: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """As `streamed`; a turn is BK inputs, rows of weights begin at p_w, [BN, 1]. float32 is
    multiplied as three products of TF32."""
    i_k = first * BK + tl.arange(0, BK)[None, :]
    p_x += i_k
    p_w += i_k
    for _ in range(first, last):
        b_x = tl.load(p_x, mask=m_inside, other=0.0)
        b_w = tl.load(p_w, mask=n_inside, other=0.0)
        if WEIGHTS_FIRST:
            acc = tl.dot(b_w, tl.trans(b_x), acc, input_precision="tf32x3")
        else:
            acc = tl.dot(b_x, tl.trans(b_w), acc, input_precision="tf32x3")
        p_x += BK
        p_w += BK
    return acc


class Stream(NamedTuple):
    """What a kernel is told of some packed rows.

    arrays: words, high bits and scales, or dense values. step: inputs of a turn.
    """

    arrays: tuple[Any, ...]
    step: int
    constants: dict[str, Any]


def stream_of(device: GpuDevice, part: PackedPart) -> Stream:
    format, arrays = part.format, part.arrays
    if format.dense:
        step = 32 if format.dense == "f32" else 64
        return Stream((arrays.values,), step, {"BK": step})
    shape = layout.coding(format)
    unroll = max(1, (256 if part.inputs % 256 == 0 else 128) // shape.inputs)
    constants = {
        "UNROLL": unroll,
        "INPUTS": shape.inputs,
        "SCALES": shape.scales,
        "BITS": format.bits,
        "BLOCK": format.block,
        "ZERO": format.zero,
        "AFFINE": format.affine,
        "TABLE": layout.table_words(format),
        "PTX": device.place.type != "cpu",
    }
    return Stream((arrays.words, arrays.high, arrays.scales), unroll * shape.inputs, constants)
