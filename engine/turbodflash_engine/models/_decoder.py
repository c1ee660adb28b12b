"""The run that decoder models share: embed, blocks, head, on one device or handed on to others.

The head waits until somebody asks for logits, and for which (see `Scores`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from turbodflash_engine.cache import Cache
from turbodflash_engine.layers.head import Head
from turbodflash_engine.layers.scores import Scores
from turbodflash_engine.layers.steps import AS_THE_DEVICE, FEW_ROWS, Threads
from turbodflash_engine.models._base import Lasting, Output, Shared
from turbodflash_engine.models._placement import Placement
from turbodflash_engine.models._stage import Block, Shape, Stage, as_it_is
from turbodflash_kernels.op import Array


class Decoder:
    """A `Model` of blocks in a row.

    embed: tokens -> f32[n, width]. head: of the device of the last run. accompany: (tokens,
    embedded rows) -> what all blocks see beside the residual stream, if there is anything. What
    neighbours on one device do is one captured step; between devices rows go through the host.
    """

    def __init__(
        self,
        placement: Placement,
        *,
        embed: Callable[[Array], Array],
        blocks: Sequence[Block],
        head: Head,
        cache: Cache,
        shared: Shared,
        accompany: Callable[[Array, Array], Array] | None = None,
        threads: Threads = AS_THE_DEVICE,
    ) -> None:
        self.cache, self.shared, self.vocabulary = cache, shared, shared.vocabulary
        cache.reader = lambda tokens: self(tokens, logits=0)
        self._head, self._layers = head, range(len(blocks))
        self._scored: dict[tuple[Shape, int], Scores] = {}
        runs = list(placement.runs())
        self._stages = [
            Stage(
                run.device,
                run.layers,
                [blocks[layer] for layer in run.layers],
                self._layers[-1],
                begin=embed if run is runs[0] else as_it_is,
                accompany=accompany if run is runs[0] else None,
                threads=threads,
            )
            for run in runs
        ]

    def __call__(
        self,
        tokens: Sequence[int],
        logits: int = 1,
        taps: tuple[int, ...] = (),
        parents: Sequence[int] | None = None,
    ) -> Output:
        count = len(tokens)
        self._check(tokens, logits, taps)
        self.cache.expect(tokens)
        given = max(logits, 1)  # so passes with and without logits are one captured step
        shape = Shape(count, given, tuple(taps), parents is not None)
        start = self.cache.length
        places = _places(start, count, parents)
        stage, *others = self._stages
        passed = stage(shape, np.array(tokens, np.int32), places)
        tapped = dict(stage.rings if shape.lasting else passed.taps)
        beside = None
        if others and passed.beside is not None:
            beside = stage.device.read(passed.beside)
        for following in others:
            passed = following(shape, stage.device.read(passed.x), places, beside)
            tapped |= following.rings if shape.lasting else passed.taps
            stage = following
        self.cache.advance(count)
        rows: Sequence[Array] = [tapped[tap] for tap in taps]
        if shape.lasting:
            rows = Lasting(rows, start)
        return Output(self._scores(shape, logits, passed.x), rows)

    def _scores(self, shape: Shape, logits: int, x: Array) -> Scores:
        """Of the last rows, as many as logits may be asked for."""
        known = self._scored.get((shape, logits))
        if known and known.of is x:
            return known.anew()
        scores = Scores(self._head, x, shape.logits - logits)
        if shape.rows <= FEW_ROWS:
            self._scored[shape, logits] = scores
        return scores

    def _check(self, tokens: Sequence[int], logits: int, taps: tuple[int, ...]) -> None:
        if not len(tokens):
            raise ValueError("there are no tokens to read")
        if min(tokens) < 0 or max(tokens) >= self.vocabulary:
            raise ValueError(f"a token lies outside of 0 to {self.vocabulary - 1}")
        if not 0 <= logits <= len(tokens):
            raise ValueError(f"cannot give logits of {logits} rows out of {len(tokens)}")
        if not all(0 <= tap <= len(self._layers) for tap in taps):
            raise ValueError(f"taps {taps} are not all layers of 0 to {len(self._layers)}")


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
