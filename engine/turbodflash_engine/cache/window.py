"""Memory of the last positions: a ring of slots, for a layer that looks no further back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from turbodflash_engine.cache.dense import DenseLayer
from turbodflash_engine.cache.pieces import Arrays, Piece, Pieces, expect, kv_piece, put_kv
from turbodflash_kernels.device import KV
from turbodflash_kernels.op import Rope


class WindowLayer(DenseLayer):
    """Keys and values of a position take the place of those that stood `ring` positions before.

    A token sees `window` positions, its own among them. What one pass, or all of one trial, stores
    lies beside what its first token sees: so a trial loses nothing that counts, and there are at
    most `widest` tokens in it.
    """

    can_forget = passive = False

    def __init__(self, kv: KV, window: int, rope: Rope | None = None) -> None:
        super().__init__(kv, rope)
        self._window = window
        self._length = 0
        self._lost = 0  # positions before this one were overwritten, or may have been

    @property
    def widest(self) -> int:
        """Tokens of a pass, or of all passes of a trial."""
        return self.kv.ring - self._window + 1

    def expect(self, count: int) -> None:
        if count > self.widest:
            raise ValueError(f"a pass of {count} tokens; a window has room for {self.widest}")
        self._lost = max(self._lost, self._length + count - self.kv.ring)

    def advance(self, length: int) -> None:
        self._length = length

    def restore(self, mark: int, kept: Sequence[int]) -> None:
        if self._lost > self._seen_from(mark):
            raise ValueError(f"a trial of more tokens than {self.widest}, for which there is room")
        super().restore(mark, kept)
        self._length = mark + len(kept)

    @property
    def form(self) -> str:
        return f"{super().form}/window:{self._window}"

    def pieces(self, length: int) -> Pieces:
        """first: the position of the first slot."""
        first = np.array([self._lost], np.int32)
        kept = kv_piece(self.kv, length - self._lost, self._lost)
        return {"first": Piece("I32", (1,), lambda: first), "kv": kept}

    def fill(self, saved: Arrays, length: int) -> None:
        expect(saved["first"], "int32", 1)
        first = int(saved["first"][0])
        if not 0 <= first <= self._seen_from(length):
            raise ValueError(f"{length} tokens of which the first is {first}")
        rows = saved["kv"]
        expect(rows, "uint8", length - first, *rows.shape[1:])
        self._length, self._lost = length, max(first, length - self.kv.ring)
        put_kv(self.kv, rows[self._lost - first :], length - self._lost, self._lost)

    def reach(self, length: int) -> int:
        return length if self._lost <= self._seen_from(length) else 0

    def truncate(self, length: int) -> None:
        self._length, self._lost = length, min(self._lost, length)

    def forget(self, start: int, stop: int, length: int) -> None:
        raise ValueError("a window does not close up; a cache that shifts keeps all positions")

    def _seen_from(self, length: int) -> int:
        """The first position that a token after so many others sees."""
        return max(length - self._window + 1, 0)
