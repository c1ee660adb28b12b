"""A drafter around another one: what a wrapper does not change is the inner one's."""

from __future__ import annotations

from collections.abc import Sequence

from turbodflash_engine.cache.pieces import Arrays, Pieces
from turbodflash_engine.drafters._base import Draft, Drafter, Rows


class Around:
    """As the drafter within."""

    def __init__(self, drafter: Drafter) -> None:
        self._drafter = drafter
        self.name, self.taps, self.longest = drafter.name, drafter.taps, drafter.longest

    @property
    def nbytes(self) -> int:
        return self._drafter.nbytes

    def draft(self, history: Sequence[int], width: int) -> Draft:
        return self._drafter.draft(history, width)

    def observe(
        self, tokens: Sequence[int], positions: range, taps: Sequence[Rows], coming: int = 0
    ) -> None:
        self._drafter.observe(tokens, positions, taps, coming)

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
