"""Up to FEW_ROWS rows stream the weights past; more rows share each tile of them.

Activations are prepared by a kernel of their own: prologue, then float16, in units of a power of
two per row and segment of the inputs, so that no row overflows and none loses its small numbers.
A segment is what one block sums up. The segments of a matrix follow from its shape and the card;
their sums are added in ascending order by the block that comes last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import triton
import triton.language as tl

from turbodflash_kernels._gpu import layout
from turbodflash_kernels._gpu.unpack import decoded
from turbodflash_kernels.op import Gated, Prologue, RmsNorm

if TYPE_CHECKING:
    from turbodflash_kernels._gpu.device import GpuDevice
    from turbodflash_kernels._gpu.weight import GpuWeight, PackedPart
    from turbodflash_kernels.op import Array

FEW_ROWS = 32


@triton.jit
def _activated(x, at, gap, ACTIVATION: tl.constexpr, inside):
    """x, or act(gate) * up where the gate lies at x and up `gap` further."""
    value = tl.load(x + at, mask=inside, other=0.0)
    if ACTIVATION == "":
        return value
    up = tl.load(x + gap + at, mask=inside, other=0.0)
    if ACTIVATION == "silu":
        return value * tl.sigmoid(value) * up
    inner = 0.7978845608028654 * value * (1 + 0.044715 * value * value)  # sqrt(2 / pi)
    return value * tl.sigmoid(2 * inner) * up  # (1 + tanh(z)) / 2 = sigmoid(2 z)


@triton.jit(do_not_specialize=["k", "segment"])
def _prepare(
    x,
    norm,
    out,
    units,
    x_stride,
    out_stride,
    k,
    segment,
    eps,
    NORM: tl.constexpr,
    ACTIVATION: tl.constexpr,
    HALF: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A segment of a row: out [rows, out_stride], units f32 [rows, segments].

    Without HALF the numbers stay float32 and units are 1.
    """
    row = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1) * segment
    last = tl.minimum(first + segment, out_stride)
    x += row * x_stride
    lanes = tl.arange(0, BLOCK)
    rstd = 1.0
    if NORM:
        squares = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, k, BLOCK):
            value = tl.load(x + start + lanes, mask=start + lanes < k, other=0.0)
            squares += value * value
        rstd = 1 / tl.sqrt_rn(tl.sum(squares, axis=0) / k + eps)
    inverse, unit = 1.0, 1.0
    if HALF:
        largest = tl.zeros((BLOCK,), tl.float32)
        for start in range(first, last, BLOCK):
            at = start + lanes
            value = _activated(x, at, k, ACTIVATION, at < k)
            if NORM:
                value = value * rstd * tl.load(norm + at, mask=at < k, other=0.0)
            largest = tl.maximum(largest, tl.abs(value))
        exponent = tl.max(largest, axis=0).to(tl.int32, bitcast=True) >> 23
        exponent = tl.minimum(tl.maximum(exponent, 14), 254)
        inverse = ((267 - exponent) << 23).to(tl.float32, bitcast=True)
        unit = ((exponent - 13) << 23).to(tl.float32, bitcast=True)
    tl.store(units + row * tl.num_programs(1) + tl.program_id(1), unit)
    for start in range(first, last, BLOCK):
        at = start + lanes
        value = _activated(x, at, k, ACTIVATION, at < k)
        if NORM:
            value = value * rstd * tl.load(norm + at, mask=at < k, other=0.0)
        value = (value * inverse).to(out.dtype.element_ty)
        tl.store(out + row * out_stride + at, value, mask=at < last)


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
    i_tile = (i_n // 32).to(tl.int64) * sub_tiles + first * UNROLL
    i_row = i_n % 32
    i_16 = tl.arange(0, 16)[None, :]
    p_x = x + i_m[:, None] * x_stride + first * (UNROLL * INPUTS) + tl.arange(0, 32)[None, :]
    p_words = words + (i_tile * 512 + i_row * 16)[:, None] + i_16
    p_high = p_words
    if high is not None:  # tiles of 256 inputs
        p_high = high + (i_tile * (INPUTS * 2) + i_row * 16)[:, None] + i_16
    # wider tiles of scales would go through shared memory
    PIECE: tl.constexpr = min(SCALES, 4)
    SCALES_EACH: tl.constexpr = INPUTS // 32 * PIECE // SCALES
    p_scales = scales + (i_tile * (32 * SCALES) + i_row * SCALES)[:, None]
    p_scales += tl.arange(0, PIECE)[None, :]

    acc = tl.zeros((BN, BM) if WEIGHTS_FIRST else (BM, BN), tl.float32)
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
                    b_words,
                    b_high,
                    b_scales,
                    u * INPUTS % 256 // INPUTS,
                    p,
                    p % SCALES_EACH,
                    BITS,
                    BLOCK,
                    ZERO,
                    AFFINE,
                    TABLE,
                    PTX,
                )
                b_x = tl.load(p_x + (u * INPUTS + p * 32), mask=m_inside, other=0.0)
                if WEIGHTS_FIRST:
                    acc = tl.dot(b_w, tl.trans(b_x), acc)
                else:
                    acc = tl.dot(b_x, tl.trans(b_w), acc)
        p_x += UNROLL * INPUTS
        p_words += UNROLL * 512
        p_high += UNROLL * INPUTS * 2
        p_scales += UNROLL * 32 * SCALES
    if WEIGHTS_FIRST:
        acc = tl.trans(acc)
    _finish(
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
    i_k = first * BK + tl.arange(0, BK)[None, :]
    p_x = x + i_m[:, None] * x_stride + i_k
    p_w = values + i_n.to(tl.int64)[:, None] * x_stride + i_k
    acc = tl.zeros((BN, BM) if WEIGHTS_FIRST else (BM, BN), tl.float32)
    for _ in range(first, last):
        b_x = tl.load(p_x, mask=m_inside, other=0.0)
        b_w = tl.load(p_w, mask=n_inside, other=0.0)
        if WEIGHTS_FIRST:
            acc = tl.dot(b_w, tl.trans(b_x), acc, input_precision="tf32x3")
        else:
            acc = tl.dot(b_x, tl.trans(b_w), acc, input_precision="tf32x3")
        p_x += BK
        p_w += BK
    if WEIGHTS_FIRST:
        acc = tl.trans(acc)
    _finish(
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


@triton.jit
def _finish(
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
):
    """Out of units, together with the other segments where there are any."""
    segment, segments = tl.program_id(2), tl.num_programs(2)
    inside = (i_m < n)[:, None] & (i_n < columns)[None, :]
    acc *= tl.load(units + i_m * segments + segment, mask=i_m < n, other=0.0)[:, None]
    if partial is None:
        _write(
            acc, i_m, i_n, inside, unit, bias, residual, out, columns, out_stride, residual_stride
        )
    else:
        p_partial = partial + i_m[:, None] * columns + i_n[None, :]
        step = n.to(tl.int64) * columns
        tl.store(p_partial + segment * step, acc, mask=inside)
        tl.debug_barrier()  # all of the block has stored before one of it says so
        counter = counters + tl.program_id(1)
        if tl.atomic_add(counter, 1, sem="acq_rel", scope="gpu") == segments - 1:
            total = tl.zeros_like(acc)
            for _ in range(segments):
                total += tl.load(p_partial, mask=inside, other=0.0, cache_modifier=".cg")
                p_partial += step
            _write(
                total,
                i_m,
                i_n,
                inside,
                unit,
                bias,
                residual,
                out,
                columns,
                out_stride,
                residual_stride,
            )
            tl.store(counter, 0)


@triton.jit
def _write(
    total, i_m, i_n, inside, unit, bias, residual, out, columns, out_stride, residual_stride
):
    total *= tl.load(unit + i_n, mask=i_n < columns, other=0.0)[None, :]
    if bias is not None:
        total += tl.load(bias + i_n, mask=i_n < columns, other=0.0)[None, :]
    if residual is not None:
        p_residual = residual + i_m[:, None] * residual_stride + i_n[None, :]
        total += tl.load(p_residual, mask=inside, other=0.0)
    tl.store(out + i_m[:, None] * out_stride + i_n[None, :], total, mask=inside)


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
        segment = _segment(device, weight) if n <= FEW_ROWS else weight.inputs
        prepared = {half: _prepared(device, x, weight, prologue, segment, half) for half in halves}
        first = 0
        for product in products:
            product(prepared[product.halves], n, segment, out, first, bias, residual)
            first += product.part.rows
        return out

    return linear


class Tile(NamedTuple):
    """What a block computes: rows of x times columns of the result."""

    rows: int
    columns: int
    warps: int
    stages: int


NARROW = Tile(16, 32, 2, 3)  # where tiles of 64 columns would leave multiprocessors idle
FEW = Tile(16, 64, 4, 3)
MORE = Tile(32, 128, 8, 2)
MANY = Tile(128, 128, 8, 2)
INTERPRETED = {16: Tile(16, 128, 4, 1), 32: Tile(32, 128, 4, 1)}

SEGMENT = 256  # segments are whole multiples of it
LEAST_SEGMENT = 512
MOST_SEGMENTS = 8
BLOCKS_EACH = 3  # blocks per multiprocessor that hide each other's waiting


def _tile(device: GpuDevice, n: int, columns: int) -> Tile:
    if n > FEW_ROWS:
        return MANY
    if device.place.type == "cpu":
        return INTERPRETED[16 if n <= 16 else 32]
    if n > 16:
        return MORE
    return NARROW if columns < FEW.columns * device.card.sms else FEW


def _segment(device: GpuDevice, weight: GpuWeight) -> int:
    """Inputs that one block sums up, of a pass of few rows; from shape and card alone."""
    blocks = triton.cdiv(weight.rows, FEW.columns)
    wanted = min(BLOCKS_EACH * device.card.sms // blocks, MOST_SEGMENTS)
    segment = triton.cdiv(weight.inputs, max(wanted, 1) * SEGMENT) * SEGMENT
    return min(max(segment, LEAST_SEGMENT), weight.inputs)


class _Prepared(NamedTuple):
    """x: [n, inputs]. units: f32 [n, segments]."""

    x: Array
    units: Array


def _prepared(
    device: GpuDevice, x: Array, weight: GpuWeight, prologue: Prologue, segment: int, half: bool
) -> _Prepared:
    n, segments = x.shape[0], triton.cdiv(weight.inputs, segment)
    out = device.scratch((n, weight.inputs), np.float16 if half else np.float32)
    units = device.scratch((n, segments), np.float32)
    norm = prologue if isinstance(prologue, RmsNorm) else None
    device.launch(
        _prepare,
        (n, segments),
        x,
        norm.weight if norm else None,
        out,
        units,
        x.stride(0),
        weight.inputs,
        weight.cols,
        segment,
        float(norm.eps) if norm else 0.0,
        warps=8,
        stages=1,
        NORM=norm is not None,
        ACTIVATION=prologue.activation if isinstance(prologue, Gated) else "",
        HALF=half,
        BLOCK=2048,
    )
    return _Prepared(out, units)


class _Product:
    """One part of a matrix, times activations, into its columns of the result."""

    def __init__(self, device: GpuDevice, weight: GpuWeight, index: int) -> None:
        self.device, self.weight = device, weight
        self.part: PackedPart = weight.parts[index]
        self.halves = self.part.format.dense != "f32"
        blocks = triton.cdiv(self.part.rows, NARROW.columns)
        self.counters = device.counters.take(blocks)
        self.kernel, self.arrays, self.step, self.constants = _kernel(device, self.part)

    def __call__(
        self,
        prepared: _Prepared,
        n: int,
        segment: int,
        out: Array,
        first: int,
        bias: Array | None,
        residual: Array | None,
    ) -> None:
        columns = self.part.rows
        last = first + columns
        tile = _tile(self.device, n, columns)
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


def _kernel(
    device: GpuDevice, part: PackedPart
) -> tuple[Any, tuple[Any, ...], int, dict[str, Any]]:
    """The kernel, its arrays of weights, the inputs of a turn, and its constants."""
    format, arrays = part.format, part.arrays
    if format.dense:
        step = 32 if format.dense == "f32" else 64
        return _product_dense, (arrays.values,), step, {"BK": step}
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
    return _product, (arrays.words, arrays.high, arrays.scales), unroll * shape.inputs, constants
