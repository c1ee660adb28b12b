"""The run that decoder models share: embed, blocks, head, captured once per number of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from turbodflash_engine.cache import Cache
from turbodflash_engine.models._base import Output, Shared
from turbodflash_kernels.device import Device
from turbodflash_kernels.op import Array

Block: TypeAlias = Callable[[Array, Array, int], Array]
"""(x f32[n, width], positions, last) -> f32[last, width]; all n rows are remembered."""

FEW_ROWS = 16  # passes of so few rows come again and again: their steps are kept
WIDE_STEPS = 2  # of the others, the steps used last


class _Key(NamedTuple):
    rows: int
    logits: int
    taps: tuple[int, ...]


class _Step(NamedTuple):
    tokens: Array
    positions: Array
    run: Callable[[], tuple[Array, tuple[Array, ...]]]


class Decoder:
    """A `Model` of blocks in a row.

    embed: tokens -> f32[n, width]. head: f32[n, width] -> f32[n, vocabulary].
    """

    def __init__(
        self,
        device: Device,
        *,
        embed: Callable[[Array], Array],
        blocks: Sequence[Block],
        head: Callable[[Array], Array],
        cache: Cache,
        shared: Shared,
    ) -> None:
        self.cache, self.shared, self.vocabulary = cache, shared, shared.vocabulary
        self._device, self._embed, self._blocks, self._head = device, embed, tuple(blocks), head
        self._steps: dict[_Key, _Step] = {}

    def __call__(
        self, tokens: Sequence[int], logits: int = 1, taps: tuple[int, ...] = ()
    ) -> Output:
        ids = self._checked(tokens, logits, taps)
        start, stop = self.cache.length, self.cache.length + len(ids)
        self.cache.reserve(len(ids))
        step = self._step(_Key(len(ids), max(logits, 1), tuple(taps)))
        self._device.write(step.tokens, ids)
        self._device.write(step.positions, np.arange(start, stop, dtype=np.int32))
        scores, tapped = step.run()
        rows = self._device.read(scores)
        self.cache.advance(len(ids))
        return Output(rows[len(rows) - logits :], tapped)

    def _checked(
        self, tokens: Sequence[int], logits: int, taps: tuple[int, ...]
    ) -> NDArray[np.int32]:
        ids = np.asarray(tokens, np.int64)
        if not len(ids):
            raise ValueError("there are no tokens to read")
        if ids.min() < 0 or ids.max() >= self.vocabulary:
            raise ValueError(f"a token lies outside of 0 to {self.vocabulary - 1}")
        if not 0 <= logits <= len(ids):
            raise ValueError(f"cannot give logits of {logits} rows out of {len(ids)}")
        if any(not 0 <= tap < len(self._blocks) for tap in taps):
            raise ValueError(f"taps {taps} are not all layers of 0 to {len(self._blocks) - 1}")
        return ids.astype(np.int32)

    def _step(self, key: _Key) -> _Step:
        step = self._steps.pop(key, None) or self._captured(key)
        self._steps[key] = step
        wide = [key for key in self._steps if key.rows > FEW_ROWS]
        for old in wide[:-WIDE_STEPS]:
            del self._steps[old]
        return step

    def _captured(self, key: _Key) -> _Step:
        tokens, positions = (self._device.upload(np.zeros(key.rows, np.int32)) for _ in range(2))
        run = self._device.capture(lambda: self._pass(tokens, positions, key))
        return _Step(tokens, positions, run)

    def _pass(self, tokens: Array, positions: Array, key: _Key) -> tuple[Array, tuple[Array, ...]]:
        x = self._embed(tokens)
        tapped = {}
        for index, block in enumerate(self._blocks):
            if index in key.taps:
                tapped[index] = x
            final = index == len(self._blocks) - 1
            x = block(x, positions, key.logits if final else key.rows)
        return self._head(x), tuple(tapped[tap] for tap in key.taps)
