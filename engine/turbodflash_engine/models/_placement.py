"""On which device each part of a model computes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from turbodflash_kernels.device import Device


class Run(NamedTuple):
    """Neighbouring layers on one device; none of them where the head stands alone."""

    device: Device
    layers: range


class Placement(NamedTuple):
    """layers: the device of each, one at least; keys and values lie beside their layer.

    The embedding is where the first layer is.
    """

    layers: tuple[Device, ...]
    head: Device

    @classmethod
    def on(cls, device: Device, layers: int) -> Placement:
        """All of a model of so many layers on one device."""
        return cls((device,) * layers, device)

    @classmethod
    def split(cls, host: Device, card: Device, layers: int, on_card: int) -> Placement:
        """on_card: layers that go to the card, from the end; the head is the first to go.

        So residual rows cross over once. From `layers` + 1 on the embedding goes, too.
        """
        stay = min(max(layers + 1 - on_card, 0), layers)
        return cls((host,) * stay + (card,) * (layers - stay), card if on_card else host)

    @property
    def embedding(self) -> Device:
        return self.layers[0]

    def describe(self) -> str:
        """For a person: one device, or each with what is on it."""
        runs = list(self.runs())
        if len(runs) == 1:
            return self.head.describe()
        parts = [f"{run.device.describe()}: {_carried(run, run is runs[-1])}" for run in runs]
        return "; ".join(parts)

    def runs(self) -> Iterator[Run]:
        """In the order of a pass; the head belongs to the last."""
        first = 0
        for device, run in groupby(self.layers):
            stop = first + len(list(run))
            yield Run(device, range(first, stop))
            first = stop
        if self.layers[-1] is not self.head:
            yield Run(self.head, range(first, first))


def _carried(run: Run, last: bool) -> str:
    count = len(run.layers)
    parts = [f"{count} layer{'s' * (count != 1)}"] if count else []
    return " and ".join(parts + ["the head"] * last)
