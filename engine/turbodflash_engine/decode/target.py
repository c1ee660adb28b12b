"""What the loop needs of a model, and one pass through it that counts only if it succeeds."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from turbodflash_engine.cache.pieces import Arrays, Pieces
from turbodflash_engine.sampling.candidates import Largest


class Trial(Protocol):
    def keep(self, count: int) -> None:
        """The first `count` tokens fed since the trial began have happened, the rest have not."""

    def keep_path(self, rows: Sequence[int]) -> None:
        """Of a tree, the tokens of these rows have happened, one after the other."""


class Cache(Protocol):
    @property
    def length(self) -> int:
        """Tokens it holds."""

    @property
    def capacity(self) -> int:
        """Tokens it has room for."""

    def checkpoint(self) -> None:
        """What is held now is worth going back to, though not all layers can by themselves."""

    @property
    def widest(self) -> int:
        """The most tokens of a pass."""

    def reach(self, length: int) -> int:
        """The longest beginning, at most `length` tokens, that `truncate` can go back to."""

    def truncate(self, length: int) -> None:
        """Forget all but the first `length` tokens, which it must reach."""

    @property
    def form(self) -> str:
        """What it is stored in."""

    def pieces(self) -> Pieces:
        """All that it remembers."""

    def fill(self, saved: Arrays, length: int) -> None:
        """Become the cache of the same form and so many tokens that these pieces came of.

        Raises KeyError or ValueError for what is no such thing; the cache is then empty.
        """

    def forget(self, start: int, stop: int) -> None:
        """Tokens start..stop-1 are gone, and those behind them take their positions.

        If it is cut short, the first `start` tokens are left.
        """

    def trial(self) -> AbstractContextManager[Trial]:
        """Feed tokens that may be wrong: what `keep` did not claim never happened."""


class Output(Protocol):
    """What a pass gave. Ask for logits before anything else is run; taps hold while they are made.

    What was given is good until more is asked for or run.
    """

    @property
    def logits(self) -> NDArray[np.float32]:
        """[rows asked for, vocab], on the host."""

    def largest(self, count: int, width: int) -> Largest:
        """Of the first `width` logits of these rows, on the host."""

    @property
    def taps(self) -> Sequence[Any]:
        """[tokens fed, width] for each tap asked for, on the device."""


class Target(Protocol):
    """The model whose text it is. A call feeds tokens after those the cache holds."""

    @property
    def cache(self) -> Cache: ...

    def __call__(
        self,
        tokens: Sequence[int],
        logits: int = 1,
        taps: tuple[int, ...] = (),
        parents: Sequence[int] | None = None,
    ) -> Output:
        """Logits of the last `logits` rows, and the rows that entered the layers `taps`.

        parents: for a tree, the row of each one's parent, -1 of row 0.
        """
