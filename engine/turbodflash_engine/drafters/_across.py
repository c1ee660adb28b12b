"""A drafter that computes elsewhere than the model whose rows it looks at."""

from __future__ import annotations

from collections.abc import Sequence

from turbodflash_engine.cache.pieces import Arrays, Pieces
from turbodflash_engine.drafters._base import Draft, Drafter, Rows
from turbodflash_engine.models._base import Shared
from turbodflash_kernels.device import Device


def across(drafter: Drafter, device: Device, target: Shared) -> Drafter:
    """The drafter, shown its rows on its own device; itself, if all lie there already."""
    sources = tuple(target.devices[tap] for tap in drafter.taps)
    if all(source is device for source in sources):
        return drafter
    return Across(drafter, device, sources)


class Across:
    """Copies rows that were kept to the drafter's device, those of other devices alone.

    sources: the device that each tap lies on.
    """

    def __init__(self, drafter: Drafter, device: Device, sources: Sequence[Device]) -> None:
        self._drafter, self._device, self._sources = drafter, device, sources
        self.name, self.taps, self.longest = drafter.name, drafter.taps, drafter.longest

    @property
    def nbytes(self) -> int:
        return self._drafter.nbytes

    def draft(self, history: Sequence[int], width: int) -> Draft:
        return self._drafter.draft(history, width)

    def observe(
        self, tokens: Sequence[int], positions: range, taps: Sequence[Rows], coming: int = 0
    ) -> None:
        brought = [
            rows if source is self._device else self._device.upload(source.read(rows))
            for source, rows in zip(self._sources, taps, strict=True)
        ]
        self._drafter.observe(tokens, positions, brought, coming)

    def truncate(self, length: int) -> None:
        self._drafter.truncate(length)

    def forget(self, start: int, stop: int) -> None:
        self._drafter.forget(start, stop)

    @property
    def form(self) -> str:
        return self._drafter.form

    def pieces(self) -> Pieces:
        return self._drafter.pieces()

    def resume(self, tokens: Sequence[int], saved: Arrays) -> None:
        self._drafter.resume(tokens, saved)
