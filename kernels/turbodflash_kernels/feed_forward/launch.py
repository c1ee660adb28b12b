"""How `feed_forward` is recorded on the CPU device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from turbodflash_kernels._cpu import layout, streams
from turbodflash_kernels._cpu.device import MANY_ROWS, CpuDevice, Stream
from turbodflash_kernels._cpu.preparing import Codes, preparation, quantised
from turbodflash_kernels._cpu.team import address
from turbodflash_kernels._cpu.weight import CpuWeight, PackedPart
from turbodflash_kernels._cpu.words import float_word
from turbodflash_kernels.feed_forward.composed import compose
from turbodflash_kernels.linear import launch as linear
from turbodflash_kernels.op import Array, Prologue

PAIRS_OF_BLOCK = layout.BLOCK // layout.TILE  # a tile of the gate and one of up are a pair


def refuse(device: CpuDevice, *, gate_up: CpuWeight, down: CpuWeight, **statics: Any) -> str | None:
    return linear.unfit(gate_up) or linear.unfit(down)


def bind(
    device: CpuDevice,
    *,
    gate_up: CpuWeight,
    down: CpuWeight,
    prologue: Prologue,
    activation: Literal["silu", "gelu"],
    gate_up_bias: Array | None,
    down_bias: Array | None,
) -> Callable[..., Array]:
    if not _in_one_go(gate_up, down) or gate_up_bias is not None:
        return compose(
            device,
            gate_up=gate_up,
            down=down,
            prologue=prologue,
            activation=activation,
            gate_up_bias=gate_up_bias,
            down_bias=down_bias,
        )
    gated = _gated(device, gate_up.parts[0], prologue, activation)
    products = linear.products(device, down)

    def feed_forward(x: Array, residual: Array | None = None) -> Array:
        codes, n = gated(x), len(x)
        out = device.scratch((n, down.rows), np.float32)
        for first, multiply in products:
            multiply(codes, n, out, 4 * first, down_bias, residual)
        return out

    return feed_forward


def _in_one_go(gate_up: CpuWeight, down: CpuWeight) -> bool:
    """Whether what is between the products are codes, of gate and up in one run of tiles."""
    parts = (*gate_up.parts, *down.parts)
    return len(gate_up.parts) == 1 and not any(part.format.dense or part.lower for part in parts)


def _gated(
    device: CpuDevice, part: PackedPart, prologue: Prologue, activation: str
) -> Callable[[Array], Codes]:
    """Record act(gate) * up of rows x, as codes."""
    quantise = preparation(device, prologue, True)
    kernel = device.kernel(
        "feed_forward", "gated", streams.lifted(part.format), activation, device.isa
    )
    tiles, pairs, hidden = address(part.tiles), part.count // 2, part.rows // 2
    blocks, factor = part.cols // layout.BLOCK, float_word(part.factor)

    def gated(x: Array) -> Codes:
        n = len(x)
        left = quantised(device, quantise, prologue, x, part.cols)
        codes = Codes(device, n, hidden, shared=True)
        per_task, row_step = _task_shape(device, n, pairs)
        device.keep(part.tiles)
        device.record(
            kernel,
            -(-pairs // per_task) * -(-n // row_step),
            *(tiles, part.tile_bytes, pairs, per_task, n, row_step, blocks, factor),
            *left.words(),
            *codes.words(),
            rows=n,
            stream=Stream(tiles, per_task * part.tile_bytes) if n <= MANY_ROWS else None,
        )
        return codes

    return gated


def _task_shape(device: CpuDevice, n: int, pairs: int) -> tuple[int, int]:
    """Pairs and activation rows of a task, whole blocks."""
    tiles, rows = linear.task_shape(device, n, 2 * pairs)
    whole = -(-tiles // (2 * PAIRS_OF_BLOCK)) * PAIRS_OF_BLOCK
    return whole, rows
