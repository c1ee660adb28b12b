"""Up to FEW_ROWS rows stream the weights past; more rows share each tile of them.

Activations are prepared by a kernel of their own: prologue, then float16, in units of a power of
two per row and segment of the inputs, so that no row overflows and none loses its small numbers.
A segment is what one block sums up. The segments of a matrix follow from its shape and the card;
their sums are added in ascending order by the block that comes last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import triton
import triton.language as tl

from turbodflash_kernels._gpu.activations import Prepared, prepare
from turbodflash_kernels._gpu.device import FEW_ROWS, GpuDevice
from turbodflash_kernels._gpu.epilogue import finish
from turbodflash_kernels._gpu.streams import stream_of, streamed, streamed_dense
from turbodflash_kernels._gpu.tiles import segment_of, tile_for, tiles_of
from turbodflash_kernels.op import Prologue

if TYPE_CHECKING:
    from turbodflash_kernels._gpu.weight import GpuWeight, PackedPart
    from turbodflash_kernels.op import Array


@triton.jit(do_not_specialize=["n", "turns", "turns_each"])
def _product(
    x,
    units,
    words,
    high,
    scales,
    unit,
    bias,
    residual,
    out,
    partial,
    counters,
    n,
    columns,
    x_stride,
    sub_tiles,
    turns,
    turns_each,
    out_stride,
    residual_stride,
    BM: tl.constexpr,
    BN: tl.constexpr,
    WEIGHTS_FIRST: tl.constexpr,
    UNROLL: tl.constexpr,
    INPUTS: tl.constexpr,
    SCALES: tl.constexpr,
    BITS: tl.constexpr,
    BLOCK: tl.constexpr,
    ZERO: tl.constexpr,
    AFFINE: tl.constexpr,
    TABLE: tl.constexpr,
    PTX: tl.constexpr,
):
    """A tile [BM, BN] of x @ weights^T, over the turns of a segment; a turn is UNROLL sub-tiles.

    grid: tiles of rows, tiles of columns, segments. The segment that comes last adds all up.
    """
    i_m = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    i_n = tl.program_id(1) * BN + tl.arange(0, BN)
    m_inside = (i_m < n)[:, None]
    # tiles of 32 rows of weights are whole in memory; beyond the last there is nothing
    n_inside = (i_n < (columns + 31) // 32 * 32)[:, None]
    first = tl.program_id(2) * turns_each
    last = tl.minimum(first + turns_each, turns)
    p_x = x + i_m[:, None] * x_stride
    acc = tl.zeros((BN, BM) if WEIGHTS_FIRST else (BM, BN), tl.float32)
    acc = streamed(
        acc, p_x, m_inside, words, high, scales, i_n, n_inside, sub_tiles, first, last,
        WEIGHTS_FIRST, UNROLL, INPUTS, SCALES, BITS, BLOCK, ZERO, AFFINE, TABLE, PTX,
    )  # fmt: skip
    if WEIGHTS_FIRST:
        acc = tl.trans(acc)
    finish(
        acc,
        i_m,
        i_n,
        units,
        unit,
        bias,
        residual,
        out,
        partial,
        counters,
        n,
        columns,
        out_stride,
        residual_stride,
    )


@triton.jit(do_not_specialize=["n", "turns", "turns_each"])
def _product_dense(
    x,
    units,
    values,
    unit,
    bias,
    residual,
    out,
    partial,
    counters,
    n,
    columns,
    x_stride,
    turns,
    turns_each,
    out_stride,
    residual_stride,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    WEIGHTS_FIRST: tl.constexpr,
):
    """As `_product`; a turn is BK inputs. float32 is multiplied as three products of TF32."""
    i_m = tl.program_id(0) * BM + tl.arange(0, BM)
    i_n = tl.program_id(1) * BN + tl.arange(0, BN)
    first = tl.program_id(2) * turns_each
    last = tl.minimum(first + turns_each, turns)
    m_inside, n_inside = (i_m < n)[:, None], (i_n < columns)[:, None]
    i_m = i_m.to(tl.int64)
    acc = tl.zeros((BN, BM) if WEIGHTS_FIRST else (BM, BN), tl.float32)
    acc = streamed_dense(
        acc, x + i_m[:, None] * x_stride, m_inside, values + i_n.to(tl.int64)[:, None] * x_stride,
        n_inside, first, last, WEIGHTS_FIRST, BK,
    )  # fmt: skip
    if WEIGHTS_FIRST:
        acc = tl.trans(acc)
    finish(
        acc,
        i_m,
        i_n,
        units,
        unit,
        bias,
        residual,
        out,
        partial,
        counters,
        n,
        columns,
        out_stride,
        residual_stride,
    )


def refuse(
    device: GpuDevice, *, weight: GpuWeight, prologue: Prologue, bias: Array | None
) -> str | None:
    return None


def bind(
    device: GpuDevice, *, weight: GpuWeight, prologue: Prologue, bias: Array | None
) -> Callable[..., Array]:
    products = [_Product(device, weight, index) for index in range(len(weight.parts))]
    halves = {product.halves for product in products}

    def linear(x: Array, residual: Array | None = None) -> Array:
        n = x.shape[0]
        out = device.scratch((n, weight.rows), np.float32)
        segment = segment_of(device, weight.rows, weight.inputs) if n <= FEW_ROWS else weight.inputs
        prepared = {
            half: prepare(device, x, prologue, weight.cols, weight.inputs, segment, half)
            for half in halves
        }
        first = 0
        for product in products:
            product(prepared[product.halves], n, segment, out, first, bias, residual)
            first += product.part.rows
        return out

    return linear


class _Product:
    """One part of a matrix, times activations, into its columns of the result."""

    def __init__(self, device: GpuDevice, weight: GpuWeight, index: int) -> None:
        self.device, self.weight = device, weight
        self.part: PackedPart = weight.parts[index]
        self.halves = self.part.format.dense != "f32"
        blocks = triton.cdiv(self.part.rows, tiles_of(device).narrow.columns)
        self.counters = device.counters.take(blocks)
        self.kernel: Any = _product_dense if self.part.format.dense else _product
        self.arrays, self.step, self.constants = stream_of(device, self.part)

    def __call__(
        self,
        prepared: Prepared,
        n: int,
        segment: int,
        out: Array,
        first: int,
        bias: Array | None,
        residual: Array | None,
    ) -> None:
        columns = self.part.rows
        last = first + columns
        tile = tile_for(self.device, n, columns, self.halves)
        segments = prepared.units.shape[1]
        split = segments > 1
        into = out[:, first:last]
        added = None if residual is None else residual[:, first:last]
        sizes = [prepared.x.stride(0)]
        if not self.part.format.dense:
            sizes.append(self.part.arrays.words.shape[1])
        self.device.launch(
            self.kernel,
            (triton.cdiv(n, tile.rows), triton.cdiv(columns, tile.columns), segments),
            prepared.x,
            prepared.units,
            *self.arrays,
            self.part.arrays.unit,
            None if bias is None else bias[first:last],
            added,
            into,
            self.device.scratch((segments, n, columns), np.float32) if split else None,
            self.counters if split else None,
            n,
            columns,
            *sizes,
            self.part.inputs // self.step,
            segment // self.step,
            into.stride(0),
            0 if added is None else added.stride(0),
            warps=tile.warps,
            stages=tile.stages,
            BM=tile.rows,
            BN=tile.columns,
            WEIGHTS_FIRST=n > FEW_ROWS,
            **self.constants,
        )
