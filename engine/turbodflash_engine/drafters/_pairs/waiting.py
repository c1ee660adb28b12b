"""Observed tokens that are not paired yet, with the model's residual rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from turbodflash_engine.drafters._base import Rows
from turbodflash_kernels.device import Device

ROOM = 64  # rows; the buffer grows by so many


class Waiting:
    """The end of the observed text: a token's row waits at least until the next token is known.

    rows: [room, taps * width], each tap in its columns; the first `count` are those of `tokens`,
        the last of which stands at position `end` - 1. A longer one replaces it when there is need.
    paired: the token that a draft paired the only row with. If that token comes, the row is done.
    """

    def __init__(self, device: Device, taps: int, width: int) -> None:
        self._device = device
        self.rows = device.empty((ROOM, taps * width), np.float32)
        self.tokens: list[int] = []
        self.end = 0
        self.paired: int | None = None

    @property
    def nbytes(self) -> int:
        rows, columns = self.rows.shape
        return 4 * rows * columns

    @property
    def count(self) -> int:
        return len(self.tokens)

    @property
    def start(self) -> int:
        return self.end - len(self.tokens)

    @property
    def stored(self) -> int:
        """Rows of the cache that are there, once all but the last of those that wait are done."""
        return self.end - (self.count > 0 and self.paired is None)

    def hold(self, tokens: Sequence[int], taps: Sequence[Rows]) -> None:
        """These tokens, with rows [n, width] of each tap, wait too."""
        if self.paired is not None:
            if self.paired == tokens[0]:
                self.tokens.clear()
            self.paired = None
        first = self.count
        self._make_room(first + len(tokens))
        self._device.copy(self.rows[first : first + len(tokens)], *taps)
        self.tokens += tokens
        self.end += len(tokens)

    def leave_last(self, paired: int | None = None) -> None:
        """All rows but the last are done; that one was paired with a token that may be wrong."""
        if self.count > 1:
            self._device.copy(self.rows[:1], self.rows[self.count - 1 : self.count])
            del self.tokens[:-1]
        self.paired = paired

    def truncate(self, length: int) -> None:
        """Only the first `length` tokens were observed."""
        if length < self.end:
            del self.tokens[max(length - self.start, 0) :]
            self.end, self.paired = length, None

    def forget(self, start: int, stop: int) -> None:
        """The tokens start..stop-1 are gone: none of the rows that wait, or all of them."""
        if stop > self.start:
            self.truncate(start)
        else:
            self.end -= stop - start

    def read(self) -> NDArray[np.float32]:
        """Those of the tokens, on the host."""
        return self._device.read(self.rows[: self.count]).copy()

    def resume(self, tokens: Sequence[int], rows: NDArray[np.float32]) -> None:
        """All these tokens were observed, and the last ones' rows [n, columns] wait."""
        if len(rows):
            self._device.copy(self.rows[: len(rows)], self._device.upload(rows))
        self.tokens, self.end, self.paired = (
            list(tokens[len(tokens) - len(rows) :]),
            len(tokens),
            None,
        )

    def _make_room(self, count: int) -> None:
        room, columns = self.rows.shape
        if count > room:
            longer = self._device.empty((-(-count // ROOM) * ROOM, columns), np.float32)
            self._device.copy(longer[: self.count], self.rows[: self.count])
            self.rows = longer
