"""Neighbouring blocks on one device, captured once per shape of a pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from numpy.typing import NDArray

from turbodflash_engine.layers.attention import Places
from turbodflash_engine.layers.steps import Steps, Threads
from turbodflash_kernels.device import Device
from turbodflash_kernels.op import Array

Block: TypeAlias = Callable[[Array, Places, int], Array]
"""(x f32[n, width], places, last) -> f32[last, width]; all n rows are remembered."""


class Shape(NamedTuple):
    """All of a pass that its ops depend on. logits: rows that the last block gives.

    taps: layers whose inputs are asked for.
    """

    rows: int
    logits: int
    taps: tuple[int, ...]
    tree: bool


class Passed(NamedTuple):
    """What a stage gives; it holds until the stage runs again. taps: those of its own layers."""

    x: Array
    taps: dict[int, Array]


class Stage:
    """layers: numbers of its blocks in the model, whose last block is `final`.

    begin: makes residual rows f32[n, width] of what it is given. end: makes the result of the rows
    that leave the last block.
    """

    def __init__(
        self,
        device: Device,
        layers: range,
        blocks: Sequence[Block],
        final: int,
        *,
        begin: Callable[[Array], Array],
        end: Callable[[Array], Array],
        threads: Threads,
    ) -> None:
        self.device = device
        self._blocks, self._final = dict(zip(layers, blocks, strict=True)), final
        self._begin, self._end = begin, end
        self._steps: Steps[Shape, Passed] = Steps(device, self._pass, threads)

    def __call__(self, shape: Shape, given: NDArray[Any], places: Sequence[NDArray[Any]]) -> Passed:
        """given: one row, or one token, for each row of the pass."""
        return self._steps(shape, given, *places)

    def _pass(self, shape: Shape, given: Array, *places: Array) -> Passed:
        x = self._begin(given)
        taps = {}
        for index, block in self._blocks.items():
            if index in shape.taps:
                taps[index] = x
            x = block(x, Places(*places), shape.logits if index == self._final else shape.rows)
        return Passed(self._end(x), taps)


def as_it_is(x: Array) -> Array:
    """For a stage that begins or ends with residual rows."""
    return x
