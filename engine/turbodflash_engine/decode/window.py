"""What of a text the cache holds, and what leaves it when it is full."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NamedTuple

from turbodflash_engine.decode.target import Target
from turbodflash_engine.drafters._base import Drafter

ALL = sys.maxsize
"""More tokens than any text has."""


class Shift(NamedTuple):
    """Of a full context the first `keep` tokens stay, and of the rest the first `drop` leave."""

    keep: int
    drop: int

    @classmethod
    def of(cls, capacity: int, keep: int) -> Shift:
        """Half of what is not kept leaves. keep: cut to three quarters, or ever more would leave
        ever fewer tokens to make room for.
        """
        keep = min(keep, 3 * capacity // 4)
        return cls(keep, max((capacity - keep) // 2, 1))

    def due(self, tokens: int, room: int) -> int:
        """How many of so many tokens leave until there is room for the rest."""
        over = max(tokens - room, 0)
        return -(-over // self.drop) * self.drop


class Window:
    """The tokens that are in the cache and were observed by the drafter.

    tokens: as they stand there; those said in an answer come with its end. dropped: by the answer
    at hand. Text that had lost some of its beginning is not what the model makes of the same
    tokens alone, so none of it stands for a prompt that fits as a whole.
    """

    def __init__(self, model: Target, drafter: Drafter) -> None:
        self.tokens: list[int] = []
        self.dropped = 0
        self._model, self._drafter = model, drafter
        self._left_in_answer = 0
        self._whole = ALL  # the first so many tokens were told nothing by others

    def begin(self, prompt: Sequence[int], shift: Shift | None, room: int) -> list[int]:
        """Cut the cache to what it shares with a prompt, whose last token is always computed.

        The result is the prompt without what leaves it, at most `room` tokens.
        """
        drop = shift.due(len(prompt), room) if shift else 0
        self.dropped, self._left_in_answer = drop, 0
        if shift is None or not drop:
            self._cut(min(common(self.tokens, prompt), self._whole, len(prompt) - 1))
            return list(prompt)
        left = [*prompt[: shift.keep], *prompt[shift.keep + drop :]]
        leaves = self._leaves(left, shift)
        beside = common(self._without(shift.keep, leaves), left)
        shared = min(beside, len(left) - 1)
        self._cut(shared + leaves)
        if leaves:
            self._forget(shift.keep, leaves)
        return left

    def make_room(self, shift: Shift) -> None:
        """Within an answer: what leaves a full context leaves."""
        self._forget(shift.keep, shift.drop)
        self._left_in_answer += shift.drop
        self.dropped += shift.drop

    def end(self, history: Sequence[int], shift: Shift | None) -> None:
        """An answer is over, or stopped: all tokens since `begin`, the prompt's first."""
        length = self._model.cache.length
        keep = shift.keep if shift else 0
        self.tokens = [*history[:keep], *history[keep + self._left_in_answer :]][:length]
        self._drafter.truncate(length)

    def _leaves(self, left: Sequence[int], shift: Shift) -> int:
        """How many tokens leave the cache for it to share most with a prompt that was cut."""
        behind = len(self.tokens) - shift.keep
        return max(
            range(0, max(behind, 1), shift.drop),
            key=lambda leaves: (common(self._without(shift.keep, leaves), left), -leaves),
        )

    def _without(self, keep: int, leaves: int) -> list[int]:
        return self.tokens[:keep] + self.tokens[keep + leaves :]

    def _cut(self, length: int) -> None:
        del self.tokens[length:]
        if length < self._model.cache.length:
            self._model.cache.truncate(length)
        self._drafter.truncate(self._model.cache.length)
        if length <= self._whole:
            self._whole = ALL

    def _forget(self, keep: int, count: int) -> None:
        self._whole = min(self._whole, keep)
        try:
            self._model.cache.forget(keep, keep + count)
            self._drafter.forget(keep, keep + count)
            del self.tokens[keep : keep + count]
        except BaseException:
            self._cut(keep)
            raise


def common(first: Sequence[int], second: Sequence[int]) -> int:
    """Length of the common beginning."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(first), len(second)))
