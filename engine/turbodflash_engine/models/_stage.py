"""Neighbouring blocks on one device, captured once per shape of a pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from turbodflash_engine.layers.attention import Places
from turbodflash_engine.layers.steps import Steps, Threads
from turbodflash_engine.models._base import LASTING
from turbodflash_kernels.device import Device
from turbodflash_kernels.op import Array

Block: TypeAlias = Callable[[Array, Places, int], Array]
"""(x f32[n, width], places, last) -> f32[last, width]; all n rows are remembered."""

CHAIN, TREE = 1, 3
"""How many arrays say where the rows of a pass stand."""


class Shape(NamedTuple):
    """All of a pass that its ops depend on. logits: rows that the last block gives.

    taps: layers whose inputs are asked for; the number of layers = what leaves the last one.
    """

    rows: int
    logits: int
    taps: tuple[int, ...]
    tree: bool

    @property
    def lasting(self) -> bool:
        """Whether taps go to rings (see `Lasting`)."""
        return self.rows == 1 and not self.tree


class Passed(NamedTuple):
    """What a stage gives, as `Steps` does. taps: those of its own layers that are not in rings.

    beside: what accompanies the rows through all layers, if anything does.
    """

    x: Array
    taps: dict[int, Array]
    beside: Array | None = None


class Stage:
    """layers: numbers of its blocks in the model, whose last block is `final`.

    begin: makes residual rows f32[n, width] of what it is given. accompany: (what is given,
    residual rows) -> what accompanies the rows of a first stage; later ones are given it.
    rings: f32[LASTING, width] for each tap that was asked for of one row.
    """

    def __init__(
        self,
        device: Device,
        layers: range,
        blocks: Sequence[Block],
        final: int,
        *,
        begin: Callable[[Array], Array],
        accompany: Callable[[Array, Array], Array] | None = None,
        threads: Threads,
    ) -> None:
        self.device, self._accompany = device, accompany
        self._blocks, self._final = dict(zip(layers, blocks, strict=True)), final
        self._begin = begin
        self.rings: dict[int, Array] = {}
        self._steps: Steps[Shape, Passed] = Steps(device, self._pass, threads)

    def __call__(
        self,
        shape: Shape,
        given: NDArray[Any],
        places: Sequence[NDArray[Any]],
        beside: NDArray[Any] | None = None,
    ) -> Passed:
        """given: one row, or one token, for each row of the pass. beside: what accompanies them."""
        return self._steps(shape, given, *places, *([] if beside is None else [beside]))

    def _pass(self, shape: Shape, given: Array, *inputs: Array) -> Passed:
        x = self._begin(given)
        count = TREE if shape.tree else CHAIN
        places, beside = Places(*inputs[:count]), next(iter(inputs[count:]), None)
        if self._accompany is not None:
            beside = self._accompany(given, x)
        places = places._replace(beside=beside)
        taps, outputs = {}, self._final + 1
        for index, block in self._blocks.items():
            if index in shape.taps:
                taps[index] = x
            few = index == self._final and outputs not in shape.taps
            x = block(x, places, shape.logits if few else shape.rows)
            if index == self._final and not few:
                taps[outputs] = x
                x = x[shape.rows - shape.logits :]
        if shape.lasting:
            for tap, rows in taps.items():
                self._keep(tap, rows, places.positions)
            taps = {}
        return Passed(x, taps, beside)

    def _keep(self, tap: int, rows: Array, positions: Array) -> None:
        """Record that these rows go to the ring of a tap."""
        if tap not in self.rings:
            self.rings[tap] = self.device.empty((LASTING, rows.shape[1]), np.float32)
        self.device.bind("tap", ring=self.rings[tap])(rows, positions)


def as_it_is(x: Array) -> Array:
    """For a stage that is given residual rows."""
    return x
