"""How `tap_conv` is recorded on the CPU device."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from turbodflash_kernels._cpu.device import CpuDevice
from turbodflash_kernels._cpu.team import address
from turbodflash_kernels.op import Array


def refuse(device: CpuDevice, *, base: Array, group: int) -> str | None:
    if base.shape[1] % group:
        return f"{base.shape[1]} channels are not whole groups of {group}"
    return None


def bind(device: CpuDevice, *, base: Array, group: int) -> Callable[..., Array]:
    taps, width = base.shape
    kernel = device.kernel("tap_conv", "convolve", group % 16 == 0)

    def tap_conv(x: Array, dynamic: Array, residual: Array | None = None) -> Array:
        n = len(x)
        out = device.scratch((n, width), np.float32)
        device.keep(base, x, dynamic, residual)
        device.record(
            kernel,
            n,
            *(address(base), base.strides[0], taps, width, group),
            *(address(x), x.strides[0], address(dynamic), dynamic.strides[0]),
            *((address(residual), residual.strides[0]) if residual is not None else (0, 0)),
            *(address(out), out.strides[0]),
            rows=n,
        )
        return out

    return tap_conv
