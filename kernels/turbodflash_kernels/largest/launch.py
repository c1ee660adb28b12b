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
    find = finder(device, count)

    def largest(x: Array) -> tuple[Array, Array]:
        found = room(device, len(x), count)
        find(x, *found)
        return found

    return largest


def room(device: CpuDevice, n: int, count: int) -> tuple[Array, Array]:
    """For what is found in n rows: values and ids."""
    return device.scratch((n, count), np.float32), device.scratch((n, count), np.int32)


def finder(device: CpuDevice, count: int) -> Callable[[Array, Array, Array], None]:
    """find(x, values, ids): record it."""
    maxima_of = device.kernel("largest", "maxima", BLOCK, BLOCKS_PER_TASK)
    choose = device.kernel("largest", "choose", BLOCK)

    def find(x: Array, values: Array, ids: Array) -> None:
        n, width = x.shape
        blocks = -(-width // BLOCK)
        maxima = device.scratch((n, -(-blocks // 16) * 16), np.float32)
        device.keep(x)
        numbers = (address(x), x.strides[0], width)
        per_row = -(-blocks // BLOCKS_PER_TASK)
        row_of_maxima = (address(maxima), maxima.strides[0])
        device.record(maxima_of, n * per_row, *numbers, n, *row_of_maxima, rows=n)
        device.record(
            choose, n, *numbers, *row_of_maxima, count, address(values), address(ids), rows=n
        )

    return find
