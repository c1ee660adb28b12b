"""What this machine could do at best: the yardstick of every speed we print."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from turbodflash_kernels._cpu.team import address, aligned

if TYPE_CHECKING:
    from turbodflash_kernels._cpu.device import CpuDevice

BUFFER_BYTES = 256 << 20  # well beyond any cache
TASK_BYTES = 1 << 20
TURNS = 1 << 19


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Reading memory, in 1e9 bytes a second; int8 multiply-adds, in 1e9 a second."""

    read_gbs: float
    int8_gmacs: float


class Probe:
    """Kept open between measurements, so that a ceiling can be taken right beside a speed."""

    def __init__(self, device: CpuDevice) -> None:
        self._device = device
        self._buffer = aligned(BUFFER_BYTES, np.uint8)
        self._buffer.fill(1)
        self._out = aligned(16 * max(BUFFER_BYTES // TASK_BYTES, 1024), np.int32)

    def read_gbs(self) -> float:
        """One pass over the buffer."""
        kernel = self._device.library.address("_cpu.ceiling_kernels", "read")
        words = (address(self._buffer), TASK_BYTES, address(self._out))
        tasks = BUFFER_BYTES // TASK_BYTES
        return BUFFER_BYTES / self._seconds(kernel, tasks, words) / 1e9

    def int8_gmacs(self) -> float:
        from turbodflash_kernels._cpu import isa  # noqa: F401  (levels name the instruction)

        level = self._device.isa
        kernel = self._device.library.address("_cpu.ceiling_kernels", "multiply", level)
        macs = 8 * {"avx512_vnni": 64, "avx_vnni": 32, "avx2": 32, "generic": 16}[level]
        tasks = 4 * self._device.threads
        seconds = self._seconds(kernel, tasks, (TURNS, address(self._out)))
        return tasks * TURNS * macs / seconds / 1e9

    def _seconds(self, kernel: int, tasks: int, words: tuple[int, ...]) -> float:
        self._device.flush()
        self._device.record(kernel, tasks, *words, rows=1)
        start = time.perf_counter()
        self._device.flush()
        return time.perf_counter() - start

    def ceilings(self, repeats: int = 5) -> Ceilings:
        """The best of some measurements."""
        self.read_gbs(), self.int8_gmacs()  # compile, touch
        return Ceilings(
            max(self.read_gbs() for _ in range(repeats)),
            max(self.int8_gmacs() for _ in range(repeats)),
        )
