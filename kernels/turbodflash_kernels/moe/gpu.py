"""Kernels of `moe` for Triton: experts are chosen and rows grouped on the card, then multiplied.

A *pair* is a row and one of the experts that it has chosen: pair row * used + place. `group` lists
the pairs of each expert; a block of `product` takes a tile of them, and finds out by its number
which. So grids follow from shapes, blocks too many return at once, and weights of an expert are
read by its own blocks alone. A tile's rows share the weights, and nothing else: a row has the same
bits in every pass, long or short.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import triton
import triton.language as tl

from turbodflash_kernels._gpu.activations import Prepared, prepare
from turbodflash_kernels._gpu.device import GpuDevice
from turbodflash_kernels._gpu.streams import stream_of, streamed, streamed_dense
from turbodflash_kernels._gpu.tiles import Tile, tiles_of
from turbodflash_kernels.op import Array, Experts, Gated, Prologue, RmsNorm

if TYPE_CHECKING:
    from turbodflash_kernels._gpu.weight import PackedPart

LEAST_TOTAL = tl.constexpr(6.103515625e-5)  # weights of experts are never divided by less
PAIRS = 1024  # that a program of `group` looks at together
NUMBERS = 1024  # of a row that a program of `combine` sums up


@triton.jit
def choose(
    router, stride, chosen, shares,
    EXPERTS: tl.constexpr, BLOCK: tl.constexpr, USED: tl.constexpr, PLACES: tl.constexpr,
):  # fmt: skip
    """chosen, shares: [rows, USED], the best experts of each row and their weights."""
    row = tl.program_id(0).to(tl.int64)
    i, place = tl.arange(0, BLOCK), tl.arange(0, PLACES)
    b_router = tl.load(router + row * stride + i, mask=i < EXPERTS, other=float("-inf"))
    b_router = tl.where(b_router == b_router, b_router, float("-inf"))
    top = tl.max(b_router, 0)
    total = tl.sum(tl.exp(b_router - top), 0)
    free = i < EXPERTS
    b_share, b_chosen = tl.zeros([PLACES], tl.float32), tl.zeros([PLACES], tl.int32)
    together = 0.0
    for at in range(USED):
        best = tl.max(tl.where(free, b_router, float("-inf")), 0)
        expert = tl.min(tl.where(free & (b_router == best), i, BLOCK), 0)
        free = free & (i != expert)
        share = tl.exp(best - top) / total
        together += share
        b_share = tl.where(place == at, share, b_share)
        b_chosen = tl.where(place == at, expert, b_chosen)
    b_share = b_share / tl.maximum(together, LEAST_TOTAL)
    tl.store(chosen + row * USED + place, b_chosen, mask=place < USED)
    tl.store(shares + row * USED + place, b_share, mask=place < USED)


@triton.jit(do_not_specialize=["pairs"])
def group(chosen, pairs, begins, order, PAIRS: tl.constexpr):
    """order: the pairs, those of the first expert first. begins: [experts + 1], where each starts.

    A program lists those of its expert.
    """
    expert = tl.program_id(0)
    i = tl.arange(0, PAIRS)
    before, own = 0, 0
    for start in range(0, pairs, PAIRS):
        b_chosen = tl.load(chosen + start + i, mask=start + i < pairs, other=2**30)
        before += tl.sum((b_chosen < expert).to(tl.int32), 0)
        own += tl.sum((b_chosen == expert).to(tl.int32), 0)
    tl.store(begins + expert, before)
    if expert == tl.num_programs(0) - 1:
        tl.store(begins + expert + 1, before + own)
    for start in range(0, pairs, PAIRS):
        b_chosen = tl.load(chosen + start + i, mask=start + i < pairs, other=2**30)
        is_own = (b_chosen == expert).to(tl.int32)
        place = before + tl.cumsum(is_own, 0) - 1
        tl.store(order + place, start + i, mask=is_own != 0)
        before += tl.sum(is_own, 0)


@triton.jit
def _task(begins, EXPERTS: tl.constexpr, BLOCK: tl.constexpr, BM: tl.constexpr):
    """The expert of this block, its first pair in the order, and the end of the expert's pairs.

    An expert that there is not if the block is one too many.
    """
    block, i = tl.program_id(0), tl.arange(0, BLOCK)
    first = tl.load(begins + i, mask=i < EXPERTS, other=0)
    last = tl.load(begins + i + 1, mask=i < EXPERTS, other=0)
    blocks = (last - first + BM - 1) // BM
    expert = tl.sum((tl.cumsum(blocks, 0) <= block).to(tl.int32), 0)
    before = tl.sum(tl.where(i < expert, blocks, 0), 0)
    known = tl.minimum(expert, EXPERTS - 1)
    return expert, tl.load(begins + known) + (block - before) * BM, tl.load(begins + known + 1)


@triton.jit
def _put(
    acc, pair, order, i_pair, m_inside, i_n, n_inside, column, expert, units, unit, scale,
    out, out_stride, EACH: tl.constexpr,
):  # fmt: skip
    """acc [BM, BN], out of units, goes to its pairs' rows of out."""
    if acc.shape[0] > 16:
        # loaded again, another way, so that no registers hold it for the length of the product
        pair = tl.load(order + i_pair, mask=m_inside, other=0, cache_modifier=".cg")
    source = pair // EACH
    acc *= tl.load(units + source, mask=m_inside, other=0.0)[:, None]
    acc *= tl.load(unit + i_n, mask=n_inside, other=0.0)[None, :]
    if scale is not None:
        acc *= tl.load(scale + expert)
    to = out + pair.to(tl.int64)[:, None] * out_stride + column[None, :]
    tl.store(to, acc, mask=m_inside[:, None] & n_inside[None, :])


@triton.jit
def product(
    x, units, words, high, scales, unit, scale, begins, order, out, x_stride, sub_tiles, turns,
    rows, out_stride,
    EACH: tl.constexpr, EXPERTS: tl.constexpr, EXPERTS_BLOCK: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, UNROLL: tl.constexpr, INPUTS: tl.constexpr,
    SCALES: tl.constexpr, BITS: tl.constexpr, BLOCK: tl.constexpr, ZERO: tl.constexpr,
    AFFINE: tl.constexpr, TABLE: tl.constexpr, PTX: tl.constexpr,
):  # fmt: skip
    """A tile of an expert's pairs, times a tile of its `rows` rows of weights.

    Pair p is about row p // EACH of x. grid: tiles of pairs, tiles of rows of weights.
    """
    expert, first, last = _task(begins, EXPERTS, EXPERTS_BLOCK, BM)
    if expert < EXPERTS:
        i_pair = first + tl.arange(0, BM)
        m_inside = i_pair < last
        pair = tl.load(order + i_pair, mask=m_inside, other=0)
        column = tl.program_id(1) * BN + tl.arange(0, BN)
        n_inside = column < rows
        i_n = expert * rows + column
        source = pair // EACH
        acc = tl.zeros((BM, BN), tl.float32)
        acc = streamed(
            acc, x + source.to(tl.int64)[:, None] * x_stride, m_inside[:, None], words, high,
            scales, i_n, n_inside[:, None], sub_tiles, 0, turns, False, UNROLL, INPUTS, SCALES,
            BITS, BLOCK, ZERO, AFFINE, TABLE, PTX,
        )  # fmt: skip
        _put(acc, pair, order, i_pair, m_inside, i_n, n_inside, column, expert, units, unit, scale,
             out, out_stride, EACH)  # fmt: skip


@triton.jit
def product_dense(
    x, units, values, unit, scale, begins, order, out, x_stride, turns, rows, out_stride,
    EACH: tl.constexpr, EXPERTS: tl.constexpr, EXPERTS_BLOCK: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """As `product`."""
    expert, first, last = _task(begins, EXPERTS, EXPERTS_BLOCK, BM)
    if expert < EXPERTS:
        i_pair = first + tl.arange(0, BM)
        m_inside = i_pair < last
        pair = tl.load(order + i_pair, mask=m_inside, other=0)
        column = tl.program_id(1) * BN + tl.arange(0, BN)
        n_inside = column < rows
        i_n = expert * rows + column
        source = pair // EACH
        acc = tl.zeros((BM, BN), tl.float32)
        acc = streamed_dense(
            acc, x + source.to(tl.int64)[:, None] * x_stride, m_inside[:, None],
            values + i_n.to(tl.int64)[:, None] * x_stride, n_inside[:, None], 0, turns, False, BK,
        )  # fmt: skip
        _put(acc, pair, order, i_pair, m_inside, i_n, n_inside, column, expert, units, unit, scale,
             out, out_stride, EACH)  # fmt: skip


@triton.jit
def combine(
    parts, shares, residual, residual_stride, out, width, USED: tl.constexpr, NUMBERS: tl.constexpr
):  # fmt: skip
    """out: [rows, width], what a row's pairs gave, by their weights, in order."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * NUMBERS + tl.arange(0, NUMBERS)
    inside = column < width
    total = tl.zeros([NUMBERS], tl.float32)
    for place in range(USED):
        pair = row * USED + place
        b_part = tl.load(parts + pair * width + column, mask=inside, other=0.0)
        total = tl.fma(b_part, tl.zeros_like(b_part) + tl.load(shares + pair), total)
    if residual is not None:
        total += tl.load(residual + row * residual_stride + column, mask=inside, other=0.0)
    tl.store(out + row * width + column, total, mask=inside)


def refuse(
    device: GpuDevice,
    *,
    gate_up: tuple[Experts, ...],
    down: Experts,
    experts: int,
    used: int,
    prologue: RmsNorm | None,
    activation: Literal["silu", "gelu"],
) -> str | None:
    for weight in (part.weight for part in (*gate_up, down)):
        if len(weight.parts) != 1:
            return f"experts have {len(weight.parts)} parts of different formats"
    return None


def bind(
    device: GpuDevice,
    *,
    gate_up: tuple[Experts, ...],
    down: Experts,
    experts: int,
    used: int,
    prologue: RmsNorm | None,
    activation: Literal["silu", "gelu"],
) -> Callable[..., Array]:
    into = _Products(device, gate_up, experts, prologue, used)
    out_of = _Products(device, (down,), experts, Gated(activation), 1)
    block, places = triton.next_power_of_2(experts), triton.next_power_of_2(used)
    width = out_of.width

    def route(router: Array) -> _Routed:
        n = router.shape[0]
        pairs = n * used
        chosen = device.scratch((pairs,), np.int32)
        shares = device.scratch((pairs,), np.float32)
        begins, order = (device.scratch((size,), np.int32) for size in (experts + 1, pairs))
        device.launch(
            choose, (n,), router, router.stride(0), chosen, shares,
            EXPERTS=experts, BLOCK=block, USED=used, PLACES=places, warps=1, stages=1,
        )  # fmt: skip
        device.launch(
            group, (experts,), chosen, pairs, begins, order,
            PAIRS=min(PAIRS, max(triton.next_power_of_2(pairs), 128)), warps=4, stages=1,
        )  # fmt: skip
        return _Routed(n, pairs, shares, begins, order)

    def moe(x: Array, router: Array, residual: Array | None = None) -> Array:
        routed = route(router)
        parts = out_of(into(x, routed), routed)
        out = device.scratch((routed.n, width), np.float32)
        device.launch(
            combine, (routed.n, triton.cdiv(width, NUMBERS)), parts, routed.shares, residual,
            0 if residual is None else residual.stride(0), out, width,
            USED=used, NUMBERS=NUMBERS, warps=4, stages=1,
        )  # fmt: skip
        return out

    return moe


class _Routed(NamedTuple):
    """Which pairs of a pass belong to which expert; see the kernels `choose` and `group`."""

    n: int
    pairs: int
    shares: Array
    begins: Array
    order: Array


class _Products:
    """Matrices of each expert side by side, times what is made of a row, for each of its pairs.

    each: pairs that a row of the input is for.
    """

    def __init__(
        self,
        device: GpuDevice,
        matrices: tuple[Experts, ...],
        experts: int,
        prologue: Prologue,
        each: int,
    ) -> None:
        self.device, self.experts, self.prologue, self.each = device, experts, prologue, each
        self.cols: int = matrices[0].weight.cols
        self.matrices = [
            (matrix.weight.parts[0], stream_of(device, matrix.weight.parts[0]), matrix.scale)
            for matrix in matrices
        ]
        self.width = sum(part.rows // experts for part, _, _ in self.matrices)

    def __call__(self, x: Array, routed: _Routed) -> Array:
        """f32 [pairs, rows of all matrices of an expert]."""
        device, experts = self.device, self.experts
        out = device.scratch((routed.pairs, self.width), np.float32)
        prepared: dict[tuple[bool, int], Prepared] = {}
        column = 0
        for part, stream, scale in self.matrices:
            rows, half = part.rows // experts, part.format.dense != "f32"
            if (half, part.inputs) not in prepared:
                prepared[half, part.inputs] = prepare(
                    device, x, self.prologue, self.cols, part.inputs, part.inputs, half
                )
            given, units = prepared[half, part.inputs]
            tile = _tile(device, routed, experts, rows)
            into = out[:, column : column + rows]
            kernel: Any = product_dense if part.format.dense else product
            device.launch(
                kernel, (_blocks(routed, experts, tile), triton.cdiv(rows, tile.columns)),
                given, units, *stream.arrays, part.arrays.unit, scale, routed.begins, routed.order,
                into, given.stride(0), *_sub_tiles(part), part.inputs // stream.step, rows,
                into.stride(0), EACH=self.each, EXPERTS=experts,
                EXPERTS_BLOCK=triton.next_power_of_2(experts), BM=tile.rows, BN=tile.columns,
                **stream.constants, warps=tile.warps, stages=tile.stages,
            )  # fmt: skip
            column += rows
        return out


def _sub_tiles(part: PackedPart) -> tuple[int, ...]:
    return () if part.arrays.words is None else (part.arrays.words.shape[1],)


def _blocks(routed: _Routed, experts: int, tile: Tile) -> int:
    """Tiles of pairs that there are at most: an expert has no more pairs than the pass has rows."""
    if routed.n <= tile.rows:
        return min(routed.pairs, experts)
    return min(routed.pairs, routed.pairs // tile.rows + experts)


def _tile(device: GpuDevice, routed: _Routed, experts: int, rows: int) -> Tile:
    """Of few rows also in prompts, where an expert has few."""
    tiles = tiles_of(device)
    if routed.n > tiles.few.rows:
        return tiles.more
    blocks = min(routed.pairs, experts)
    fills = blocks * rows >= tiles.few.columns * device.card.sms
    return tiles.few if fills else tiles.narrow
