"""A drafter of pairs: a token, and what the model made of the token before it.

Row p of its cache is the pair of token p + 1 and feature p, which is made of the model's residual
rows. So the last observed token has a feature and no row: its pair needs the token that is drafted
from, or observed next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from turbodflash_engine.cache.pieces import Arrays, Piece, Pieces, expect, form_of, kv_piece, put_kv
from turbodflash_engine.drafters._base import NO_DRAFT, Draft, Rows, Setting, threads_of
from turbodflash_engine.drafters._chain import UNTRAINED, Chain
from turbodflash_engine.drafters._guesses import looked_at
from turbodflash_engine.drafters._pairs.waiting import Waiting
from turbodflash_engine.drafters._words import Words
from turbodflash_engine.layers.head import Head
from turbodflash_engine.layers.steps import FEW_ROWS, Steps
from turbodflash_kernels.device import KV
from turbodflash_kernels.op import Array, Rope
from turbodflash_kernels.shifting import shift

Ids = NDArray[np.int32]

STASH = 64
"""Rows that wait for the next draft at most; so plain decoding is hardly slowed."""


class Layer(Protocol):
    """What a drafter of pairs computes with; it remembers pairs, each at its feature's position."""

    @property
    def rope(self) -> Rope:
        """What its keys are rotated by."""

    def fuse(self, taps: Array) -> Array:
        """Residual rows side by side, f32[n, taps * target width] -> features f32[n, width]."""

    def store(self, tokens: Array, features: Array, positions: Array) -> None:
        """Remember pairs of i32[n] and f32[n, width] at i32[n]."""

    def __call__(self, tokens: Array, features: Array, positions: Array) -> Array:
        """Remember the pairs; what comes after the last of them, f32[1, width]."""


class Parts(NamedTuple):
    """What one kind of these drafters is made of.

    taps, tap_width: the model's layers that it looks at, and the width of their rows. width: of a
    feature. memory: of `layer`. head: of features, with the matrix of `words`.
    """

    taps: tuple[int, ...]
    tap_width: int
    width: int
    words: Words
    memory: KV
    layer: Layer
    head: Head
    weight_bytes: int


class _Row(NamedTuple):
    """What follows a pair: its feature f32[1, width], and the largest of its logits."""

    feature: Array
    values: Array
    ids: Array


class PairDrafter:
    """Drafts token by token; its own feature stands in where the model's is not there yet.

    After a cut the last token's row keeps the pair with the token that came after it before: its
    feature is gone. When the text goes on as before, as when an answer is given again, nothing is
    lost; otherwise one row among all is a little off.
    """

    name = ""

    def __init__(self, parts: Parts, setting: Setting) -> None:
        device, options = setting.device, setting.options
        self.taps = parts.taps
        self.longest = UNTRAINED if options.n_max is None else options.n_max
        self._device, self._p_min = device, options.p_min
        self._capacity = setting.plan.positions
        self._words, self._memory = parts.words, parts.memory
        self._layer, self._head = parts.layer, parts.head
        rows = self._words.head.rows
        self._best = self._head.best(looked_at(options, rows), rows)
        self._feature = device.empty((1, parts.width), np.float32)
        self._waiting = Waiting(device, len(parts.taps), parts.tap_width)
        self._most_waiting = 1 if options.inject == "immediate" else STASH
        self._threads = threads_of(options)
        self._next: Steps[int, _Row] = Steps(device, self._after_draft, self._threads)
        self._capture_anew()
        self._weight_bytes = parts.weight_bytes

    @property
    def nbytes(self) -> int:
        return self._weight_bytes + self._memory.nbytes + self._waiting.nbytes

    def draft(self, history: Sequence[int], width: int) -> Draft:
        at = self._waiting.end - 1
        width = min(width, self.longest, self._capacity - at)
        if not self._waiting.count or width < 1:
            return NO_DRAFT
        if self._waiting.count > FEW_ROWS:
            self._store()
        pairs = self._pairs_of([*self._waiting.tokens[1:], history[-1]], self._waiting.start)
        row = self._first(self._waiting.count, *pairs)
        self._waiting.leave_last(paired=history[-1])
        chain = Chain(self._p_min)
        while (token := self._chosen(chain, row)) is not None and len(chain) < width:
            self._device.copy(self._feature, row.feature)
            row = self._next(1, *self._pairs_of([token], at + len(chain)))
        return chain.draft()

    def observe(
        self, tokens: Sequence[int], positions: range, taps: Sequence[Rows], coming: int = 0
    ) -> None:
        rows = self._waiting.rows
        self._waiting.hold(tokens, taps)
        if self._waiting.rows is not rows:
            self._capture_anew()
        if self._waiting.count > self._most_waiting:
            self._store()

    def truncate(self, length: int) -> None:
        self._waiting.truncate(length)

    def forget(self, start: int, stop: int) -> None:
        """The row before `start` keeps the pair with the token that came after it."""
        if self._waiting.end > self._capacity:
            raise ValueError(
                f"{self._waiting.end} tokens do not shift in a room of {self._capacity}"
            )
        if self._waiting.count > 1:
            self._store()
        shift(self._memory, stop, self._waiting.stored, start, self._layer.rope)
        self._waiting.forget(start, stop)

    @property
    def form(self) -> str:
        return form_of(self._memory, self._layer.rope)

    def pieces(self) -> Pieces:
        """rows: of the last token, which is not paired yet; none where its feature is gone."""
        if self._waiting.count > 1:
            self._store()
        waits = self._waiting.count
        count = min(self._waiting.end - waits, self._capacity)
        columns = self._waiting.rows.shape[1]
        return {
            "kv": kv_piece(self._memory, count),
            "rows": Piece("F32", (waits, columns), self._waiting.read),
        }

    def resume(self, tokens: Sequence[int], saved: Arrays) -> None:
        rows = saved["rows"]
        waits = min(len(rows), 1) if rows.ndim else 0
        expect(rows, "float32", waits, self._waiting.rows.shape[1])
        put_kv(self._memory, saved["kv"], min(len(tokens) - waits, self._capacity))
        self._waiting.resume(tokens, rows)

    def _capture_anew(self) -> None:
        """Steps name the buffer of waiting rows, so they last as long as it does."""
        self._pairs: Steps[int, None] = Steps(self._device, self._store_rows, self._threads)
        self._first: Steps[int, _Row] = Steps(self._device, self._after_rows, self._threads)

    def _store(self) -> None:
        """Pair all waiting rows but the last, as far as there is room for them."""
        count = min(self._waiting.count - 1, self._capacity - self._waiting.start)
        if count > 0:
            pairs = self._pairs_of(self._waiting.tokens[1 : count + 1], self._waiting.start)
            self._pairs(count, *pairs)
        self._waiting.leave_last()

    def _chosen(self, chain: Chain, row: _Row) -> int | None:
        values, ids = self._device.read_all((row.values, row.ids))
        return chain.add(values[0], self._words.tokens(ids[0]))

    def _pairs_of(self, tokens: Sequence[int], position: int) -> tuple[Ids, Ids]:
        """Tokens of pairs, and where the pairs stand, the first at `position`."""
        known = np.minimum(tokens, self._words.embedding.rows - 1).astype(np.int32)
        return known, np.arange(position, position + len(known), dtype=np.int32)

    def _store_rows(self, rows: int, tokens: Array, positions: Array) -> None:
        self._layer.store(tokens, self._layer.fuse(self._waiting.rows[:rows]), positions)

    def _after_rows(self, rows: int, tokens: Array, positions: Array) -> _Row:
        features = self._layer.fuse(self._waiting.rows[:rows])
        return self._row(self._layer(tokens, features, positions))

    def _after_draft(self, rows: int, tokens: Array, positions: Array) -> _Row:
        return self._row(self._layer(tokens, self._feature, positions))

    def _row(self, feature: Array) -> _Row:
        return _Row(feature, *self._best(feature))
