"""How `add` is recorded on the CPU device."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from turbodflash_kernels._cpu.device import CpuDevice
from turbodflash_kernels._cpu.team import address
from turbodflash_kernels._cpu.words import float_word
from turbodflash_kernels.op import Array, RmsNorm

MOST_PARTS = 4  # as many as the words of a record have room for


def refuse(device: CpuDevice, *, norms: tuple[RmsNorm | None, ...], **others: object) -> str | None:
    if len(norms) > MOST_PARTS:
        return f"{len(norms)} parts are over {MOST_PARTS}"
    return None


def bind(
    device: CpuDevice, *, norms: tuple[RmsNorm | None, ...], scale: float = 1.0, groups: int = 1
) -> Callable[..., Array]:
    kernel = device.kernel("add", "add")

    def add(*parts: Array) -> Array:
        n, width = parts[0].shape
        out = device.scratch((n, width), np.float32)
        words = [width // groups, groups, float_word(scale), address(out), out.strides[0]]
        words.append(len(parts))
        for part, norm in zip(parts, norms, strict=True):
            weight, eps = (address(norm.weight), float_word(norm.eps)) if norm else (0, 0)
            words += (address(part), part.strides[0], weight, eps)
            device.keep(part, norm and norm.weight)
        device.record(kernel, n, *words, rows=n)
        return out

    return add
