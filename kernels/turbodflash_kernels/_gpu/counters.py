"""Counters by which programs of a kernel find out who comes last."""

from __future__ import annotations

import torch

CHUNK = 1 << 14
APART = 32  # a reader's counters begin at a cache line of their own, aligned as any array


class Counters:
    """Zero before and after every kernel: who comes last sets its counter back.

    A kernel that was torn down half-way leaves others behind; `clear` heals that.
    """

    def __init__(self, place: torch.device) -> None:
        self._place = place
        self._chunks: list[torch.Tensor] = []
        self._free = 0

    def take(self, count: int) -> torch.Tensor:
        """int32[count], which nobody else has."""
        room = -(-count // APART) * APART
        if room > self._free:
            size = max(CHUNK, room)
            self._chunks.append(torch.zeros(size, dtype=torch.int32, device=self._place))
            self._free = size
        chunk = self._chunks[-1]
        start = len(chunk) - self._free
        self._free -= room
        return chunk[start : start + count]

    def clear(self) -> None:
        for chunk in self._chunks:
            chunk.zero_()
