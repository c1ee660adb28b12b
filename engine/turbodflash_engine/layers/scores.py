"""The logits of a pass: they are made when they are asked for, and only as far."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from turbodflash_engine.layers.head import Best, Head
from turbodflash_engine.sampling.candidates import Largest
from turbodflash_kernels.op import Array

Result = TypeVar("Result")

_Wanted: TypeAlias = tuple[bool, int, int]  # whether all are there, count, width


class Scores:
    """f32[n, vocabulary]: what a head makes of rows that a pass gave.

    The rows must be as the pass left them whenever something is asked for the first time: nothing
    may have been run since, save other logits of theirs, which are captured while the rows are
    there. What was given holds until something else is asked for, or run.

    of: the array f32[m, width] whose rows from `first` on they are.
    """

    def __init__(self, head: Head, of: Array, first: int) -> None:
        self.of = of
        self._head, self._rows = head, of[first:]
        self._make: Callable[[], Array] | None = None
        self._finders: dict[_Wanted, Callable[[], Best]] = {}
        self._logits: Array = None  # once they are made
        self._host: NDArray[np.float32] | None = None

    def anew(self) -> Scores:
        """The same array was given again, with other numbers: all that was captured will do."""
        self._logits = self._host = None
        return self

    def all(self) -> NDArray[np.float32]:
        """Every row, on the host."""
        if not self._rows.shape[0]:
            return np.empty((0, self._head.vocabulary), np.float32)
        if self._host is None:
            self._make = self._make or self._captured(lambda: self._head.logits(self._rows))
            self._logits = self._make()
            self._host = self._head.device.read(self._logits)
        return self._host

    def largest(self, count: int, width: int) -> Largest:
        """Of the first `width` numbers of every row; the others are not made for it."""
        wanted = self._logits is not None, count, width
        find = self._finders.get(wanted) or self._finder(wanted)
        return Largest(*self._head.device.read_all(find()))

    def _finder(self, wanted: _Wanted) -> Callable[[], Best]:
        made, count, width = wanted

        def step() -> Best:
            if not made:
                return self._head.best(count, width)(self._rows)
            best: Best = self._head.device.bind("largest", count=count)(self._logits[:, :width])
            return best

        find = self._finders[wanted] = self._captured(step)
        return find

    def _captured(self, step: Callable[[], Result]) -> Callable[[], Result]:
        return self._head.capture(step, self._rows.shape[0])
