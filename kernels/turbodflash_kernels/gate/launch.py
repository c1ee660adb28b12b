"""How `gate` is recorded on the CPU device."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from turbodflash_kernels._cpu.device import CpuDevice
from turbodflash_kernels._cpu.team import address
from turbodflash_kernels.op import Activation, Array


def refuse(device: CpuDevice, *, activation: Activation) -> str | None:
    return None


def bind(device: CpuDevice, *, activation: Activation) -> Callable[..., Array]:
    kernels = {each: device.kernel("gate", "gate", activation, each) for each in (False, True)}

    def gate(gate: Array, x: Array, residual: Array | None = None) -> Array:
        n, width = x.shape
        out = device.scratch((n, width), np.float32)
        device.keep(gate, x, residual)
        device.record(
            kernels[gate.shape[1] == width],
            n,
            *(address(gate), gate.strides[0], address(x), x.strides[0]),
            *((address(residual), residual.strides[0]) if residual is not None else (0, 0)),
            *(address(out), out.strides[0], width),
            rows=n,
        )
        return out

    return gate
