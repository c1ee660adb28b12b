"""The logits of a pass: they come to the host as far as they are needed there."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from turbodflash_engine.sampling.candidates import Largest
from turbodflash_kernels.device import Device
from turbodflash_kernels.op import Array

_Find: TypeAlias = Callable[[], tuple[Array, Array]]


class Scores:
    """f32[n, vocabulary] that a device gave; they hold as long as the device's array does.

    of: the array whose rows from `first` on they are.
    """

    def __init__(self, device: Device, of: Array, first: int) -> None:
        self.of = of
        self._device, self._array, self._again = device, of[first:], False
        self._host: NDArray[np.float32] | None = None
        self._finders: dict[tuple[int, int], _Find] = {}

    def anew(self) -> Scores:
        """The same array was given again, with other numbers; so it will be, once more."""
        self._host, self._again = None, True
        return self

    def all(self) -> NDArray[np.float32]:
        """Every row, on the host."""
        if self._host is None:
            self._host = self._device.read(self._array)
        return self._host

    def largest(self, count: int, width: int) -> Largest:
        """Of the first `width` numbers of every row, found where they are; they hold as long."""
        find = self._finders.get((count, width)) or self._finder(count, width)
        return Largest(*self._device.read_all(find()))

    def _finder(self, count: int, width: int) -> _Find:
        op = self._device.bind("largest", count=count)
        find: _Find = partial(op, self._array[:, :width])
        if self._again:
            find = self._finders[count, width] = self._device.capture(find, rows=len(self._array))
        return find
