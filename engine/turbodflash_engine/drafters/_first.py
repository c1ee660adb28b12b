"""Several drafters as one: the first that has a guess is followed."""

from __future__ import annotations

from collections.abc import Sequence

from turbodflash_engine.cache.pieces import Arrays, Pieces, below, within
from turbodflash_engine.drafters._base import NO_DRAFT, Draft, Drafter, Rows
from turbodflash_engine.options import SPEC_TYPES


class FirstOf:
    """Drafters in the order of `SPEC_TYPES`, whatever the order they are given in.

    Every one sees every token; each sees only the rows it asked for. fallback: asked after them.
    """

    def __init__(self, drafters: Sequence[Drafter], fallback: Drafter | None = None) -> None:
        asked = sorted(drafters, key=lambda each: SPEC_TYPES.index(each.name))
        self.parts = (*asked, *([fallback] if fallback else []))
        self.taps = tuple(sorted({tap for part in self.parts for tap in part.taps}))
        self._places = [tuple(self.taps.index(tap) for tap in part.taps) for part in self.parts]
        self._all = tuple(range(len(self.taps)))

    @property
    def name(self) -> str:
        return ", ".join(part.name for part in self.parts)

    @property
    def longest(self) -> int:
        return max(part.longest for part in self.parts)

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts)

    def draft(self, history: Sequence[int], width: int) -> Draft:
        drafts = (part.draft(history, width) for part in self.parts)
        return next((draft for draft in drafts if draft.tokens), NO_DRAFT)

    def observe(
        self, tokens: Sequence[int], positions: range, taps: Sequence[Rows], coming: int = 0
    ) -> None:
        for part, places in zip(self.parts, self._places, strict=True):
            seen = taps if places == self._all else [taps[place] for place in places]
            part.observe(tokens, positions, seen, coming)

    def truncate(self, length: int) -> None:
        for part in self.parts:
            part.truncate(length)

    def forget(self, start: int, stop: int) -> None:
        for part in self.parts:
            part.forget(start, stop)

    @property
    def form(self) -> str:
        return ", ".join(f"{part.name} {part.form}" for part in self.parts)

    def pieces(self) -> Pieces:
        named = (below(f"{part.name}.", part.pieces()) for part in self.parts)
        return {name: piece for pieces in named for name, piece in pieces.items()}

    def resume(self, tokens: Sequence[int], saved: Arrays) -> None:
        for part in self.parts:
            part.resume(tokens, within(saved, f"{part.name}."))


def parts_of(drafter: Drafter) -> tuple[Drafter, ...]:
    """The drafters that one is made of: itself, if it is not several."""
    return drafter.parts if isinstance(drafter, FirstOf) else (drafter,)
