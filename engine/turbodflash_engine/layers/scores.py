"""The logits of a pass: they come to the host as far as they are needed there."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from turbodflash_engine.sampling.candidates import Largest
from turbodflash_kernels.device import Device
from turbodflash_kernels.op import Array


class Scores:
    """f32[n, vocabulary] that a device gave; they hold as long as the device's array does."""

    def __init__(self, device: Device, array: Array) -> None:
        self._device, self._array = device, array
        self._host = None if device.apart else device.read(array)

    def all(self) -> NDArray[np.float32]:
        """Every row, on the host."""
        if self._host is None:
            self._host = self._device.read(self._array)
        return self._host

    def largest(self, count: int, width: int) -> Largest | None:
        """Of the first `width` numbers of every row; None where all are on the host already."""
        if self._host is not None:
            return None
        best = self._device.bind("largest", count=count)(self._array[:, :width])
        return Largest(*self._device.read_all(best))
