"""What of a text the cache holds, and what leaves it when it is full."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NamedTuple

from turbodflash_engine.cache.pieces import Arrays
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
    at hand. whole: so many of the first were told nothing by tokens that left. What others became
    is not what the model makes of the same text, so none of it stands for a prompt that fits.
    """

    def __init__(self, model: Target, drafter: Drafter) -> None:
        self.tokens: list[int] = []
        self.dropped, self.whole = 0, ALL
        self.model, self.drafter = model, drafter
        self._left_in_answer = 0
        self._prompt = 0

    def begin(self, prompt: Sequence[int], shift: Shift | None, room: int) -> list[int]:
        """Cut the cache to what it shares with a prompt, whose last token is always computed.

        The result is the prompt without what leaves it, at most `room` tokens. The cache holds its
        beginning; what it shares and cannot be cut back to is to be read again.
        """
        drop = shift.due(len(prompt), room) if shift else 0
        self.dropped, self._left_in_answer = drop, 0
        self._prompt = len(prompt) - drop
        if shift is None or not drop:
            self._cut(min(common(self.tokens, prompt), self.whole, len(prompt) - 1))
            return list(prompt)
        left = [*prompt[: shift.keep], *prompt[shift.keep + drop :]]
        leaves = self._leaves(left, shift)
        beside = common(self._without(shift.keep, leaves), left)
        shared = min(beside, len(left) - 1)
        self._cut(shared + leaves)
        if len(self.tokens) < shift.keep + leaves:
            self._cut(shift.keep)
        elif leaves:
            self._forget(shift.keep, leaves)
        return left

    def make_room(self, shift: Shift) -> None:
        """Within an answer: what leaves a full context leaves."""
        self._forget(shift.keep, shift.drop)
        self._left_in_answer += shift.drop
        self.dropped += shift.drop

    def end(self, history: Sequence[int], shift: Shift | None) -> None:
        """An answer is over, or stopped: all tokens since `begin`, the prompt's first."""
        length = self.model.cache.length
        keep = shift.keep if shift else 0
        self.tokens = [*history[:keep], *history[keep + self._left_in_answer :]][:length]
        self.drafter.truncate(length)

    def leave_prompt(self) -> None:
        """Forget the answer; of a prompt that lost something meanwhile, what stands as it was."""
        self._cut(min(self._prompt, self.whole, len(self.tokens)))

    def fill(self, tokens: Sequence[int], whole: int, model: Arrays, drafter: Arrays) -> None:
        """Become what a window was that held these tokens, with its pieces.

        Raises KeyError or ValueError for what is no such thing; `clear` then is due.
        """
        self.model.cache.fill(model, len(tokens))
        self.drafter.resume(tokens, drafter)
        self.tokens = list(tokens)
        self.whole = ALL if whole >= len(tokens) else max(whole, 0)

    def clear(self) -> None:
        """Hold nothing."""
        self._cut(0)

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
        """To as much of the first `length` tokens as the cache can be cut back to."""
        length = self.model.cache.reach(length)
        del self.tokens[length:]
        self.model.cache.truncate(length)
        self.drafter.truncate(length)
        if length <= self.whole:
            self.whole = ALL

    def _forget(self, keep: int, count: int) -> None:
        self.whole = min(self.whole, keep)
        try:
            self.model.cache.forget(keep, keep + count)
            self.drafter.forget(keep, keep + count)
            del self.tokens[keep : keep + count]
        except BaseException:
            self._cut(keep)
            raise


def common(first: Sequence[int], second: Sequence[int]) -> int:
    """Length of the common beginning."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(first), len(second)))
