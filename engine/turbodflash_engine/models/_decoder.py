"""The run that decoder models share: embed, blocks, head, captured once per shape of a pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from turbodflash_engine.cache import Cache
from turbodflash_engine.layers.attention import Places
from turbodflash_engine.layers.steps import AS_THE_DEVICE, Steps, Threads
from turbodflash_engine.models._base import Output, Shared
from turbodflash_kernels.device import Device
from turbodflash_kernels.op import Array

Block: TypeAlias = Callable[[Array, Places, int], Array]
"""(x f32[n, width], places, last) -> f32[last, width]; all n rows are remembered."""

Result: TypeAlias = tuple[Array, tuple[Array, ...]]


class _Key(NamedTuple):
    rows: int
    logits: int
    taps: tuple[int, ...]
    tree: bool


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
        threads: Threads = AS_THE_DEVICE,
    ) -> None:
        self.cache, self.shared, self.vocabulary = cache, shared, shared.vocabulary
        self._device, self._embed, self._blocks, self._head = device, embed, tuple(blocks), head
        self._steps: Steps[_Key, Result] = Steps(device, self._pass, threads)

    def __call__(
        self,
        tokens: Sequence[int],
        logits: int = 1,
        taps: tuple[int, ...] = (),
        parents: Sequence[int] | None = None,
    ) -> Output:
        count = len(tokens)
        self._check(tokens, logits)
        self.cache.reserve(count)
        key = _Key(count, max(logits, 1), tuple(taps), parents is not None)
        ids = np.array(tokens, np.int32)
        scores, tapped = self._steps(key, ids, *_places(self.cache.length, count, parents))
        rows = self._device.read(scores)
        self.cache.advance(count)
        return Output(rows[len(rows) - logits :], tapped)

    def _check(self, tokens: Sequence[int], logits: int) -> None:
        if not len(tokens):
            raise ValueError("there are no tokens to read")
        if min(tokens) < 0 or max(tokens) >= self.vocabulary:
            raise ValueError(f"a token lies outside of 0 to {self.vocabulary - 1}")
        if not 0 <= logits <= len(tokens):
            raise ValueError(f"cannot give logits of {logits} rows out of {len(tokens)}")

    def _pass(self, key: _Key, tokens: Array, *places: Array) -> Result:
        if not set(key.taps) <= set(range(len(self._blocks))):
            raise ValueError(f"taps {key.taps} are not all layers of 0 to {len(self._blocks) - 1}")
        x = self._embed(tokens)
        tapped = {}
        for index, block in enumerate(self._blocks):
            if index in key.taps:
                tapped[index] = x
            final = index == len(self._blocks) - 1
            x = block(x, Places(*places), key.logits if final else key.rows)
        return self._head(x), tuple(tapped[tap] for tap in key.taps)


def _places(start: int, rows: int, parents: Sequence[int] | None) -> Sequence[NDArray[np.int32]]:
    """The contents of `Places` for a pass after `start` tokens."""
    slots = np.arange(start, start + rows, dtype=np.int32)
    if parents is None:
        return (slots,)
    positions = start + np.array(_depths(parents, rows), np.int32)
    return positions, slots, np.array(parents, np.int32)


def _depths(parents: Sequence[int], rows: int) -> list[int]:
    """How many ancestors each row of a tree has."""
    depths: list[int] = []
    for row, parent in enumerate(parents):
        if not min(row, 1) - 1 <= parent < row:
            raise ValueError(f"row {row} of a tree cannot have row {parent} as its parent")
        depths.append(depths[parent] + 1 if row else 0)
    if len(depths) != rows:
        raise ValueError(f"{len(depths)} parents do not make a tree of {rows} tokens")
    return depths
