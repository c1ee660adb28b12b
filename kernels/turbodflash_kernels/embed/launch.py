"""How `embed` is recorded on the CPU device."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from turbodflash_kernels._cpu.device import CpuDevice
from turbodflash_kernels._cpu.team import address
from turbodflash_kernels._cpu.weight import CpuWeight
from turbodflash_kernels._cpu.words import float_word
from turbodflash_kernels.op import Array


def refuse(device: CpuDevice, *, table: CpuWeight, scale: float) -> str | None:
    if len(table.parts) != 1:
        return f"the table has {len(table.parts)} parts of different formats"
    return None


def bind(device: CpuDevice, *, table: CpuWeight, scale: float) -> Callable[[Array], Array]:
    part = table.parts[0]
    if part.format.dense:
        kernel = device.kernel("embed", "rows_dense", part.format.dense)
    else:
        kernel = device.kernel("embed", "rows", part.format, part.lower is not None)
    lower = part.lower.tiles if part.lower else None
    scale_bits = float_word(scale * part.factor)
    beside = () if lower is None else (address(lower),)

    def embed(tokens: Array) -> Array:
        n = len(tokens)
        out = device.scratch((n, part.cols), np.float32)
        device.keep(tokens, part.tiles, lower)
        words = (address(tokens), tokens.strides[0], address(part.tiles), part.cols, scale_bits)
        device.record(kernel, n, *words, address(out), out.strides[0], *beside, rows=n)
        return out

    return embed
