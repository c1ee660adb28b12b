"""How `join` is recorded on the CPU device: each part as `linear` prepares what it multiplies."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from turbodflash_kernels._cpu.device import CpuDevice
from turbodflash_kernels._cpu.team import address
from turbodflash_kernels._cpu.words import float_word
from turbodflash_kernels.op import Array, RmsNorm

ROWS_PER_TASK = 2


def refuse(device: CpuDevice, *, norms: tuple[RmsNorm | None, ...]) -> str | None:
    return None


def bind(device: CpuDevice, *, norms: tuple[RmsNorm | None, ...]) -> Callable[..., Array]:
    kernels = [
        device.kernel("linear", "prepare", "norm" if norm else "none", False, device.isa)
        for norm in norms
    ]

    def join(*parts: Array) -> Array:
        n = len(parts[0])
        out = device.scratch((n, sum(part.shape[1] for part in parts)), np.float32)
        column = 0
        for kernel, part, norm in zip(kernels, parts, norms, strict=True):
            weight, eps = (address(norm.weight), float_word(norm.eps)) if norm else (0, 0)
            device.keep(part, norm and norm.weight)
            device.record(
                kernel,
                -(-n // ROWS_PER_TASK),
                *(address(part), part.strides[0], part.shape[1], weight, eps, ROWS_PER_TASK, n),
                *(address(out) + 4 * column, out.strides[0]),
                rows=n,
            )
            column += part.shape[1]
        return out

    return join
