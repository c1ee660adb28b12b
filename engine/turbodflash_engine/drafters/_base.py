"""The seat of a drafter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

Rows = Any
"""An array of the model's device: [tokens, width]. It is passed on and never read."""


class Drafter(Protocol):
    """Guesses what the model will say. A guess may be wrong; it never changes the text.

    The drafter sees every token that the cache holds exactly once and in order, with the rows it
    asked for, and no token that was not kept.
    """

    @property
    def taps(self) -> tuple[int, ...]:
        """The model's layers whose inputs it wants to see."""

    def draft(self, last: int, budget: int) -> Sequence[int]:
        """At most `budget` tokens that may follow `last`, which itself was not observed yet.

        None at all is a good answer: the step is then plain decoding.
        """

    def observe(self, tokens: Sequence[int], positions: range, taps: Sequence[Rows]) -> None:
        """These tokens [n] now stand at these positions; `taps` has rows [n, width] per tap."""

    def truncate(self, length: int) -> None:
        """Forget what was observed at positions from `length` on."""


class NoDrafter:
    """Never guesses: plain decoding."""

    taps: tuple[int, ...] = ()

    def draft(self, last: int, budget: int) -> Sequence[int]:
        return ()

    def observe(self, tokens: Sequence[int], positions: range, taps: Sequence[Rows]) -> None:
        pass

    def truncate(self, length: int) -> None:
        pass
