"""What a card could do at best: the yardstick of every speed we print."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from turbodflash_kernels._gpu.device import GpuDevice

COPIED = 1 << 30  # bytes, well beyond any cache
SIDE = 8192  # of the matrices that are multiplied
TIMES = 4  # in a row, so that launching is hidden


class GpuProbe:
    """A `Probe` of a card. threads: its multiprocessors. isa: its architecture."""

    def __init__(self, device: GpuDevice) -> None:
        self.threads, self.isa = device.card.sms, f"sm_{device.card.capability}"
        self._device = device
        place = device.place
        small = device.interprets  # then a figure means nothing
        self._bytes = torch.zeros(1 << 20 if small else COPIED, dtype=torch.uint8, device=place)
        self._copy = torch.empty_like(self._bytes)
        side = 256 if small else SIDE
        self._matrix = torch.zeros((side, side), dtype=torch.float16, device=place)

    def read_gbs(self) -> float:
        """1e9 bytes a second of a copy, read and written: what is read alone is no faster."""
        seconds = self._seconds(lambda: self._copy.copy_(self._bytes))
        return 2 * self._bytes.nbytes / seconds / 1e9

    def peak_gmacs(self) -> float:
        """Of half floats, as the vendor's own library multiplies large matrices."""
        seconds = self._seconds(lambda: self._matrix @ self._matrix)
        return len(self._matrix) ** 3 / seconds / 1e9

    def _seconds(self, run: Callable[[], object]) -> float:
        self._device.flush()
        start = time.perf_counter()
        for _ in range(TIMES):
            run()
        self._device.flush()
        return (time.perf_counter() - start) / TIMES
