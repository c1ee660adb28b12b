"""A drafter that computes elsewhere than the model whose rows it looks at."""

from __future__ import annotations

from collections.abc import Sequence

from turbodflash_engine.drafters._around import Around
from turbodflash_engine.drafters._base import Drafter, Rows
from turbodflash_engine.models._base import Shared
from turbodflash_kernels.device import Device


def across(drafter: Drafter, device: Device, target: Shared) -> Drafter:
    """The drafter, shown its rows on its own device; itself, if all lie there already."""
    sources = tuple(target.devices[tap] for tap in drafter.taps)
    if all(source is device for source in sources):
        return drafter
    return Across(drafter, device, sources)


class Across(Around):
    """Copies rows that were kept to the drafter's device, those of other devices alone.

    sources: the device that each tap lies on.
    """

    def __init__(self, drafter: Drafter, device: Device, sources: Sequence[Device]) -> None:
        super().__init__(drafter)
        self._device, self._sources = device, sources

    def observe(
        self, tokens: Sequence[int], positions: range, taps: Sequence[Rows], coming: int = 0
    ) -> None:
        brought = [
            rows if source is self._device else self._device.upload(source.read(rows))
            for source, rows in zip(self._sources, taps, strict=True)
        ]
        self._drafter.observe(tokens, positions, brought, coming)
