"""How a CPU's kernels choose experts: who is chosen by whom, and what stands where then."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from turbodflash_kernels._cpu.device import CpuDevice
from turbodflash_kernels._cpu.team import address
from turbodflash_kernels.op import Array

GROUP_WORDS = 3  # int32, see _cpu/route_kernels.py


class Routed(NamedTuple):
    """Rows and their experts, as the kernels know them (see cpu.py); n * used pairs."""

    n: int
    used: int
    chosen: Array
    weights: Array
    groups: Array
    order: Array
    places: Array

    @property
    def pairs(self) -> int:
        return self.n * self.used


class Choose:
    """Records who chooses whom, and what stands where."""

    def __init__(self, device: CpuDevice, experts: int, used: int, scale: Array | None) -> None:
        self._device, self._experts, self._used, self._scale = device, experts, used, scale
        self._route, self._group = device.kernel("moe", "route"), device.kernel("moe", "group")

    def __call__(self, router: Array) -> Routed:
        device, n, used, scale = self._device, len(router), self._used, self._scale
        device.keep(router, scale)
        chosen, order, places = (device.scratch((n * used,), np.int32) for _ in range(3))
        weights = device.scratch((n * used,), np.float32)
        most = min(self._experts, n * used)
        groups = device.scratch((1 + GROUP_WORDS * most,), np.int32)
        device.record(
            self._route,
            n,
            *(address(router), router.strides[0], self._experts, used),
            *(address(chosen), address(weights), 0 if scale is None else address(scale)),
            rows=n,
        )
        arrays = map(address, (groups, order, places))
        device.record(self._group, 1, address(chosen), n * used, self._experts, *arrays, rows=n)
        return Routed(n, used, chosen, weights, groups, order, places)
