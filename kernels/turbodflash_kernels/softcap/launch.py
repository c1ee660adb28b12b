"""How `softcap` is recorded on the CPU device."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from turbodflash_kernels._cpu.device import CpuDevice
from turbodflash_kernels._cpu.team import address
from turbodflash_kernels._cpu.words import float_word
from turbodflash_kernels.op import Array

PER_TASK = 8192  # numbers; a row of logits is long


def refuse(device: CpuDevice, *, cap: float) -> str | None:
    return None


def bind(device: CpuDevice, *, cap: float) -> Callable[[Array], Array]:
    kernel = device.kernel("softcap", "softcap")

    def softcap(x: Array) -> Array:
        n, width = x.shape
        out = device.scratch((n, width), np.float32)
        device.keep(x)
        per_row = -(-width // PER_TASK)
        words = (address(x), x.strides[0], address(out), out.strides[0], width)
        device.record(kernel, n * per_row, *words, per_row, PER_TASK, float_word(cap), rows=n)
        return out

    return softcap
