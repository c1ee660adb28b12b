"""How `largest` is recorded on the CPU device."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from turbodflash_kernels._cpu.device import CpuDevice
from turbodflash_kernels._cpu.team import address
from turbodflash_kernels.op import Array

BLOCK = 256  # numbers that share a maximum
BLOCKS_PER_TASK = 32


def refuse(device: CpuDevice, *, count: int) -> str | None:
    return None


def bind(device: CpuDevice, *, count: int) -> Callable[[Array], tuple[Array, Array]]:
    maxima_of = device.kernel("largest", "maxima", BLOCK, BLOCKS_PER_TASK)
    choose = device.kernel("largest", "choose", BLOCK)

    def largest(x: Array) -> tuple[Array, Array]:
        n, width = x.shape
        blocks = -(-width // BLOCK)
        maxima = device.scratch((n, -(-blocks // 16) * 16), np.float32)
        values = device.scratch((n, count), np.float32)
        ids = device.scratch((n, count), np.int32)
        device.keep(x)
        numbers = (address(x), x.strides[0], width)
        per_row = -(-blocks // BLOCKS_PER_TASK)
        row_of_maxima = (address(maxima), maxima.strides[0])
        device.record(maxima_of, n * per_row, *numbers, n, *row_of_maxima, rows=n)
        device.record(
            choose, n, *numbers, *row_of_maxima, count, address(values), address(ids), rows=n
        )
        return values, ids

    return largest
