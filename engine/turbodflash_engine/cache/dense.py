"""Memory of all positions: one slot of keys and values per position."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from turbodflash_engine.cache.pieces import Arrays, Pieces, form_of, kv_piece, put_kv
from turbodflash_kernels.device import KV
from turbodflash_kernels.op import Rope
from turbodflash_kernels.shifting import shift


class DenseLayer:
    """Keys and values live in the slot of their position, and no token looks past its own.

    So there is nothing to undo: a slot past the length of the stack is never read before it is
    written again. The rows of a tree lie one after the other until it is known which of them stay.
    """

    can_forget = passive = True

    @property
    def widest(self) -> int:
        """As many as there is room for."""
        return sys.maxsize

    def __init__(self, kv: KV, rope: Rope | None = None) -> None:
        """rope: what keys are rotated by; None = they know no positions."""
        self.kv, self._rope = kv, rope

    @property
    def nbytes(self) -> int:
        return self.kv.nbytes

    def expect(self, count: int) -> None:
        pass

    def advance(self, length: int) -> None:
        pass

    def mark(self, length: int) -> int:
        return length

    def restore(self, mark: int, kept: Sequence[int]) -> None:
        if kept == range(len(kept)):
            return
        in_place = sum(row == index for index, row in enumerate(kept))
        if in_place < len(kept):
            self.kv.move([mark + row for row in kept[in_place:]], mark + in_place)

    @property
    def form(self) -> str:
        return form_of(self.kv, self._rope)

    def pieces(self, length: int) -> Pieces:
        return {"kv": kv_piece(self.kv, length)}

    def fill(self, saved: Arrays, length: int) -> None:
        put_kv(self.kv, saved["kv"], length)

    def checkpoint(self) -> None:
        pass

    def reach(self, length: int) -> int:
        return length

    def truncate(self, length: int) -> None:
        pass

    def forget(self, start: int, stop: int, length: int) -> None:
        shift(self.kv, stop, length, start, self._rope)
