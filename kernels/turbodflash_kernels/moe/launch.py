"""How `moe` is recorded on the CPU device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

from turbodflash_kernels._cpu import layout
from turbodflash_kernels._cpu.device import MANY_ROWS, CpuDevice
from turbodflash_kernels._cpu.preparing import (
    Codes,
    kept,
    preparation,
    quantised,
)
from turbodflash_kernels._cpu.streams import View
from turbodflash_kernels._cpu.team import address
from turbodflash_kernels._cpu.weight import PackedPart
from turbodflash_kernels.linear.launch import (
    TASKS_PER_THREAD,
    TILES_PER_TASK,
    product_kernel,
    unfit,
)
from turbodflash_kernels.moe.routing import Choose, Routed
from turbodflash_kernels.op import Array, Experts, Gated, Prologue, RmsNorm

PAIRS_PER_TASK = 4
COLUMNS_PER_TASK = 512
APART = 1  # rows of a panel: those of an expert begin anywhere
SPARE = 1  # a group of 4n + 3 rows is read with one row more


def refuse(
    device: CpuDevice,
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
        if weight.rows // experts % layout.TILE:
            return f"experts of {weight.rows // experts} rows are not whole tiles of {layout.TILE}"
        if why := unfit(weight):
            return why
    return None


def bind(
    device: CpuDevice,
    *,
    gate_up: tuple[Experts, ...],
    down: Experts,
    experts: int,
    used: int,
    prologue: RmsNorm | None,
    activation: Literal["silu", "gelu"],
) -> Callable[..., Array]:
    choose = Choose(device, experts, used, down.scale)
    into = _Products(device, gate_up, experts, prologue)
    out_of = _Products(device, (Experts(down.weight),), experts, Gated(activation))
    combine = _Combine(device)

    def moe(x: Array, router: Array, residual: Array | None = None) -> Array:
        routed = choose(router)
        hidden = into(x, routed)
        return combine(out_of(hidden, routed, grouped=True), routed, residual)

    return moe


class _Products:
    """Records products of rows with the experts that they have chosen."""

    def __init__(
        self, device: CpuDevice, parts: tuple[Experts, ...], experts: int, prologue: Prologue
    ) -> None:
        self._device, self._prologue, self._experts = device, prologue, experts
        self._cols: int = parts[0].weight.cols
        self._parts = [(part.weight.parts[0], part.scale) for part in parts]
        self._kernels = [product_kernel(device, part, View(part.format)) for part, _ in self._parts]
        self._coded = any(not part.format.dense for part, _ in self._parts)
        self._dense = any(part.format.dense for part, _ in self._parts)
        self._quantise = preparation(device, prologue, True) if self._coded else 0
        self._keep = preparation(device, prologue, False) if self._dense and prologue else 0
        self._product = {
            coded: device.kernel("moe", "product", coded)
            for coded in {not part.format.dense for part, _ in self._parts}
        }
        self._gather, self._rescale = device.kernel("moe", "gather"), 0
        if any(scale is not None for _, scale in self._parts):
            self._rescale = device.kernel("moe", "rescale")

    def __call__(self, x: Array, routed: Routed, grouped: bool = False) -> Array:
        """f32[pairs, rows of an expert], at the positions of pairs.

        grouped: so are the rows of x; else there is one for each row of the pass.
        """
        inputs = self._prepared(x)
        few = not grouped and routed.n <= layout.PRIVATE_ROWS
        if not grouped and not few:
            inputs = self._gathered(inputs, routed)
        rows = [part.rows // self._experts for part, _ in self._parts]
        out = self._device.scratch((routed.pairs, sum(rows)), np.float32)
        column = 0
        for (part, scale), kernel, count in zip(self._parts, self._kernels, rows, strict=True):
            self._multiply(part, kernel, inputs, routed, few, out[:, column : column + count])
            if scale is not None:
                self._scaled(out[:, column : column + count], scale, routed)
            column += count
        return out

    def _prepared(self, x: Array) -> _Inputs:
        device, prologue, cols = self._device, self._prologue, self._cols
        codes = None
        if self._coded:
            codes = quantised(device, self._quantise, prologue, x, cols, APART, SPARE)
        plain = kept(device, self._keep, prologue, x, cols) if self._keep else x
        return _Inputs(codes, plain if self._dense else None)

    def _gathered(self, inputs: _Inputs, routed: Routed) -> _Inputs:
        """The same rows, each at the positions of its pairs."""
        device, cols, pairs = self._device, self._cols, routed.pairs
        codes, plain = inputs
        if codes is not None:
            into = Codes(device, pairs, cols, APART, SPARE)
            source, size, *_ = codes.words()
            self._copy(routed, source, size, into.words()[0], size, size)
            codes = into
        if plain is not None:
            rows = device.scratch((pairs, cols), np.float32)
            device.keep(plain)
            size = rows.strides[0]
            self._copy(routed, address(plain), plain.strides[0], address(rows), size, size)
            plain = rows
        return _Inputs(codes, plain)

    def _copy(self, routed: Routed, *copied: int) -> None:
        order = (address(routed.order), routed.pairs, routed.used, PAIRS_PER_TASK)
        tasks = -(-routed.pairs // PAIRS_PER_TASK)
        self._device.record(self._gather, tasks, *order, *copied, rows=routed.n)

    def _multiply(
        self,
        part: PackedPart,
        kernel: int,
        inputs: _Inputs,
        routed: Routed,
        few: bool,
        out: Array,
    ) -> None:
        device, coded = self._device, not part.format.dense
        tiles = part.count // self._experts
        blocks, rest = divmod(part.cols, layout.BLOCK)
        words = inputs.words(coded, rest)
        bound = min(self._experts, routed.pairs)
        tasks, shared, per_task = _task_shape(device, routed.n, bound, tiles)
        device.keep(part.tiles, inputs.plain)
        device.record(
            self._product[coded],
            tasks,
            *(kernel, address(routed.groups), address(routed.order) if few else 0, routed.used),
            *(address(part.tiles), part.tile_bytes, tiles, part.rows // self._experts, blocks),
            *(address(out), out.strides[0], *words, bound, shared, per_task),
            rows=routed.n,
        )

    def _scaled(self, x: Array, scale: Array, routed: Routed) -> None:
        device = self._device
        device.keep(scale)
        arrays = map(address, (routed.order, routed.chosen, scale, x))
        device.record(self._rescale, routed.pairs, *arrays, x.strides[0], x.shape[1], rows=routed.n)


class _Inputs(NamedTuple):
    """Rows of activations as codes, as they are, or both: what an expert's parts need."""

    codes: Codes | None
    plain: Array

    def words(self, coded: bool, rest: int) -> tuple[int, int, int, int]:
        """As `linear` has them. rest: inputs beyond whole blocks."""
        if coded:
            assert self.codes is not None
            return self.codes.words()
        return (address(self.plain), self.plain.strides[0], rest, 0)


def _task_shape(device: CpuDevice, n: int, bound: int, tiles: int) -> tuple[int, int, int]:
    """Tasks; how many share all tiles, 0 = none do; tiles of a task then.

    They decide who computes what, never a result.
    """
    if n <= MANY_ROWS:
        tasks = device.threads * TASKS_PER_THREAD
        return tasks, tasks, 0
    per_task = min(TILES_PER_TASK, -(-tiles // device.threads_batch))
    return bound * -(-tiles // per_task), 0, per_task


class _Combine:
    """Records the sums of what the experts of each row give."""

    def __init__(self, device: CpuDevice) -> None:
        self._device, self._kernel = device, device.kernel("moe", "combine")

    def __call__(self, results: Array, routed: Routed, residual: Array | None) -> Array:
        device, width = self._device, results.shape[1]
        out = device.scratch((routed.n, width), np.float32)
        columns = COLUMNS_PER_TASK if routed.n <= MANY_ROWS else width
        per_row = -(-width // columns)
        device.keep(residual)
        device.record(
            self._kernel,
            routed.n * per_row,
            *(address(results), results.strides[0], address(routed.places)),
            *(address(routed.weights), routed.used),
            *((address(residual), residual.strides[0]) if residual is not None else (0, 0)),
            *(address(out), out.strides[0], width, columns, per_row),
            rows=routed.n,
        )
        return out
