"""How `tap` is recorded on the CPU device."""

from __future__ import annotations

from collections.abc import Callable

from turbodflash_kernels._cpu.device import CpuDevice
from turbodflash_kernels._cpu.team import address
from turbodflash_kernels.op import Array


def refuse(device: CpuDevice, *, ring: Array) -> str | None:
    return None


def bind(device: CpuDevice, *, ring: Array) -> Callable[[Array, Array], None]:
    kernel = device.kernel("tap", "tap")
    slots, width = ring.shape

    def tap(x: Array, positions: Array) -> None:
        device.keep(x, positions, ring)
        words = (address(x), x.strides[0], address(positions), address(ring), ring.strides[0])
        device.record(kernel, len(x), *words, slots, width, rows=len(x))

    return tap
