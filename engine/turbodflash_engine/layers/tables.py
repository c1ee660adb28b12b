"""Tables of a file that several devices may want a copy of."""

from __future__ import annotations

from turbodflash_engine.layers.tensors import Tensors
from turbodflash_kernels.device import Device, Weight


class Table:
    """The matrix of that name, [rows, cols], packed once on each device that asks for it.

    The file must be open when a device asks first.
    """

    def __init__(self, tensors: Tensors, name: str, cols: int) -> None:
        self._tensors, self._name, self._cols = tensors, name, cols
        self._packed: dict[Device, Weight] = {}

    def on(self, device: Device) -> Weight:
        if device not in self._packed:
            self._packed[device] = device.pack(
                [self._tensors.part(self._name)], self._cols, searched=True
            )
        return self._packed[device]
