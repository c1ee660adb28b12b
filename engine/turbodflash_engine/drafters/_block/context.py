"""What a block draft knows of the text so far, and which of it still waits to be stored."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from turbodflash_engine.cache.pieces import Arrays, Piece, Pieces, expect, form_of, kv_piece, put_kv
from turbodflash_engine.drafters._base import threads_of
from turbodflash_engine.drafters._block.config import BlockConfig
from turbodflash_engine.drafters._block.injection import Injection
from turbodflash_engine.layers.steps import FEW_ROWS
from turbodflash_engine.layers.tensors import Tensors
from turbodflash_engine.models._base import LASTING, CachePlan
from turbodflash_engine.options import SpecOptions
from turbodflash_kernels.device import Device
from turbodflash_kernels.op import Array, Rope
from turbodflash_kernels.shifting import shift

STASH = LASTING
"""Rows that wait at most while nothing is drafted; a text that is left costs nothing."""
KEPT_WINDOWS = 2
"""Sliding layers store so many windows before the end of a prompt: one is seen from there, the rest
is for a text that is cut back later."""


class Context:
    """Keys and values of the draft's layers at every position that was observed.

    Rows of decoding wait until something is drafted: plain decoding is hardly slowed.
    Positions that the draft's context has no room for are counted, but not remembered.

    block: tokens of a draft pass, for which there is room after the last position.
    """

    def __init__(
        self,
        device: Device,
        tensors: Tensors,
        config: BlockConfig,
        rope: Rope,
        plan: CachePlan,
        options: SpecOptions,
        *,
        block: int,
    ) -> None:
        formats = plan.types.of_layers(config.kv_shapes)
        self.memory = tuple(format.room(device, plan.positions + block) for format in formats)
        self._injection = Injection(device, tensors, config, rope, self.memory, threads_of(options))
        self._rope, self._windows = rope, config.windows
        self._capacity, self._window = plan.positions, max(config.windows)
        self._stash = 1 if options.inject == "immediate" else STASH
        self.length = 0
        self._first = self._waiting = 0  # position of the first row that waits, and how many do
        self._needed = 0  # sliding layers need no row before this position
        self._hole = 0  # and may miss rows before this one

    @property
    def nbytes(self) -> int:
        return sum(kv.nbytes for kv in self.memory) + self._injection.nbytes

    @property
    def complete(self) -> bool:
        """Whether all is there that a block after the last position looks at."""
        seen_from = self.length + 1 - self._window if self._window else 0
        return self.length <= self._capacity and self._hole <= max(seen_from, 0)

    def observe(self, positions: range, taps: Sequence[Array], coming: int) -> None:
        """These positions, the next ones, have these rows [n, width] of each tap."""
        if positions.start != self.length:
            raise ValueError(f"position {positions.start} observed after {self.length} others")
        self.length = positions.stop
        if self._window:
            self._needed = positions.stop + coming - KEPT_WINDOWS * self._window
        count = min(positions.stop, self._capacity) - positions.start
        if count <= 0:
            self.store()  # what waits does not wait for ever
            return
        if self._injection.all_slide and positions.stop <= self._needed:
            self._skip(positions.stop)
            return
        self._injection.hold(self._waiting, taps, count)
        self._waiting += count
        if self._waiting >= self._stash or count > FEW_ROWS:  # those of a prompt never wait
            self.store()

    def store(self) -> None:
        """Leave no row waiting."""
        unneeded = min(max(self._needed - self._first, 0), self._waiting)
        if unneeded:
            self._hole = self._first + unneeded
            if not self._injection.all_slide:
                self._injection.run(0, unneeded, self._first, sliding=False)
        if unneeded < self._waiting:
            position = self._first + unneeded
            self._injection.run(unneeded, self._waiting, position, sliding=True)
        self._first, self._waiting = self._first + self._waiting, 0

    def truncate(self, length: int) -> None:
        """Only the first `length` positions were observed."""
        if length >= self.length:
            return
        self.length = length
        self._waiting = max(min(self._waiting, length - self._first), 0)
        self._first, self._hole = min(self._first, length), min(self._hole, length)
        if self._window:
            self._needed = min(self._needed, length - KEPT_WINDOWS * self._window)

    def forget(self, start: int, stop: int) -> None:
        """Positions start..stop-1 were not observed, and later ones stand that much earlier.

        No position may be one that there was no room for.
        """
        if self.length > self._capacity:
            raise ValueError(f"{self.length} positions do not shift in a room of {self._capacity}")
        self.store()
        for kv, window in zip(self.memory, self._windows, strict=True):
            first = max(stop, self._hole if window else 0)
            shift(kv, first, self.length, first - (stop - start), self._rope)
        self.length -= stop - start
        self._first = self.length
        self._needed -= stop - start
        if self._hole > start:
            self._hole = max(self._hole - (stop - start), start)

    @property
    def form(self) -> str:
        return " ".join(form_of(kv, self._rope) for kv in self.memory)

    def pieces(self) -> Pieces:
        """hole: what sliding layers miss before."""
        self.store()
        count, hole = min(self.length, self._capacity), np.array([self._hole], np.int32)
        layers = {f"{layer}.kv": kv_piece(kv, count) for layer, kv in enumerate(self.memory)}
        return layers | {"hole": Piece("I32", (1,), lambda: hole)}

    def resume(self, length: int, saved: Arrays) -> None:
        """So many positions were observed when `pieces` gave these."""
        self.truncate(0)
        expect(saved["hole"], "int32", 1)
        for layer, kv in enumerate(self.memory):
            put_kv(kv, saved[f"{layer}.kv"], min(length, self._capacity))
        self.length = self._first = length
        self._hole = min(max(int(saved["hole"][0]), 0), length)
        self._needed = length - KEPT_WINDOWS * self._window

    def _skip(self, position: int) -> None:
        """No layer will look at what comes before this position."""
        self._first, self._waiting, self._hole = position, 0, position
