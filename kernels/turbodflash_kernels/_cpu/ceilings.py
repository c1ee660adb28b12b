"""What this machine could do at best: the yardstick of every speed we print."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from turbodflash_kernels._cpu.team import address, aligned

if TYPE_CHECKING:
    from turbodflash_kernels._cpu.device import CpuDevice

BUFFER_BYTES = 256 << 20  # well beyond any cache
TASK_BYTES = 1 << 20
TURNS = 1 << 19
MACS_PER_TURN = {"avx512_vnni": 16 * 64, "avx_vnni": 8 * 32, "avx2": 8 * 32, "generic": 8 * 16}


class CpuProbe:
    """A `Probe` of a CPU device; the first measurement of each kind also compiles its kernel."""

    def __init__(self, device: CpuDevice) -> None:
        self.threads, self.isa = device.threads, device.isa
        self._device = device
        self._buffer = aligned(BUFFER_BYTES, np.uint8)
        self._buffer.fill(1)
        self._out = aligned(16 * max(BUFFER_BYTES // TASK_BYTES, 4 * device.threads), np.int32)

    def read_gbs(self) -> float:
        """1e9 bytes a second, reading memory once."""
        tasks = BUFFER_BYTES // TASK_BYTES
        words = (address(self._buffer), TASK_BYTES, address(self._out))
        return BUFFER_BYTES / self._seconds(("read",), tasks, words) / 1e9

    def peak_gmacs(self) -> float:
        """Of bytes, from registers."""
        tasks = 4 * self.threads
        seconds = self._seconds(("multiply", self.isa), tasks, (TURNS, address(self._out)))
        return tasks * TURNS * MACS_PER_TURN[self.isa] / seconds / 1e9

    def _seconds(self, spec: tuple[str, ...], tasks: int, words: tuple[int, ...]) -> float:
        kernel = self._device.library.address("_cpu.ceiling_kernels", *spec)
        self._device.flush()
        self._device.record(kernel, tasks, *words, rows=1)
        start = time.perf_counter()
        self._device.flush()
        return time.perf_counter() - start
