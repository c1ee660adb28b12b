"""Memory of recurrent layers: of all tokens as much as of one.

What may be wrong waits, as pending rows of the states (see the op `delta_net`): the next pass takes
in what was kept of them. Rows that wait can be dropped, any number from the end. All else can only
be undone by copies: one while a prompt is read, and checkpoints.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from turbodflash_engine.cache.pieces import Arrays, Piece, Pieces, expect
from turbodflash_engine.cache.stack import ReadAgain
from turbodflash_engine.errors import TurbodflashError
from turbodflash_kernels.device import Device, State
from turbodflash_kernels.op import DeltaShape

ROOM = 32
"""Rows that may wait: those of any tree, and of most drafts."""

CHECKPOINTS = 2
"""Lengths beside its own that a cache can be cut to: ends of prompts, the last ones."""


def state_bytes(shape: DeltaShape) -> int:
    """What one layer takes: its memory, a copy while a prompt is read, and those to go back to."""
    return (2 + CHECKPOINTS) * (shape.nbytes + 4 * ROOM * shape.pending)


class _Saved(NamedTuple):
    """Copies of all states after `base` tokens, and of the `rows` that waited then."""

    base: int
    rows: int
    states: list[Any]


class RecurrentLayers:
    """The memory of all recurrent layers on one device, as one layer of a cache.

    Of `length` tokens, the last `waiting` are pending rows. Of these, the `loose` last ones can be
    dropped: where a pass failed, it is not known which of them were taken in.
    """

    can_forget = passive = False
    widest = sys.maxsize

    def __init__(self, device: Device, shape: DeltaShape, layers: int) -> None:
        self._device, self._shape = device, shape
        self._counts = device.upload(np.zeros(4, np.int32))
        self.states: tuple[State, ...] = tuple(
            device.new_state(shape, self._counts, ROOM) for _ in range(layers)
        )
        self._length = self._waiting = self._loose = self._round = 0
        self._checkpoints: list[_Saved] = []
        self._in_trial, self._fed, self._running = False, 0, False
        self._before: _Saved | None = None
        """What was before a trial that more rows came in than can wait."""

    @property
    def nbytes(self) -> int:
        return sum(state.nbytes for state in self.states)

    def expect(self, count: int) -> None:
        if self._in_trial and self._before is None and self._fed + count > ROOM:
            self._before = self._save()
            if self._fed:
                self._waiting = self._fed
                self._round += 1
        self._running, self._loose = True, 0
        carried = self._fed if self._all_wait else 0
        numbers = [self._waiting, carried, max(count - ROOM, 0), self._round]
        self._device.write(self._counts, np.array(numbers, np.int32))

    def advance(self, length: int) -> None:
        count, self._length, self._running = length - self._length, length, False
        self._fed += count
        if self._all_wait:
            self._loose = self._fed
        else:
            self._wait(min(count, ROOM))

    def mark(self, length: int) -> int:
        self._in_trial, self._running, self._fed, self._before = True, False, 0, None
        return length

    def restore(self, mark: int, kept: Sequence[int]) -> None:
        all_wait, failed = self._all_wait, self._running
        self._in_trial = self._running = False
        if all_wait and self._fed:
            self._keep(kept)
        elif not all_wait:
            self._undo_beyond(kept, failed)
        elif failed:
            self._find_out()
        self._length = mark + len(kept)
        self._before = None

    def checkpoint(self) -> None:
        if self._loose < self._waiting:
            return
        others = [each for each in self._checkpoints if each.base + each.rows < self._length]
        self._checkpoints = [*others, self._save()][-CHECKPOINTS:]

    def reach(self, length: int) -> int:
        if length >= self._length - self._loose:
            return min(length, self._length)
        ends = (min(each.base + each.rows, length) for each in self._checkpoints_below(length))
        return max(ends, default=0)

    def truncate(self, length: int) -> None:
        drop = self._length - length
        if drop <= self._loose:
            self._waiting, self._loose = self._waiting - drop, self._loose - drop
        elif not length:
            for state in self.states:
                state.clear()
            self._wait(0)
        else:
            saved = self._checkpoints_below(length)[-1]
            self._restore(saved)
            self._wait(length - saved.base)
        self._length = length
        self._checkpoints = [
            each._replace(rows=min(each.rows, length - each.base))
            for each in self._checkpoints_below(length)
        ]

    @property
    def form(self) -> str:
        sizes = ":".join(str(size) for size in self._shape.sizes)
        return f"delta:{len(self.states)}:{sizes}"

    def pieces(self, length: int) -> Pieces:
        if self._loose < self._waiting:
            raise TurbodflashError(
                "a pass of the model was cut short: what it left behind cannot be saved",
                hint="begin the text anew",
            )
        count, rows, states = len(self.states), self._waiting, self.states
        window, s = self._shape.window, self._shape.s

        def stacked(read: Callable[[State], NDArray[np.float32]]) -> Callable[[], NDArray[Any]]:
            return lambda: np.stack([read(state) for state in states])

        return {
            "window": Piece("F32", (count, *window), stacked(lambda state: state.read()[0])),
            "s": Piece("F32", (count, *s), stacked(lambda state: state.read()[1])),
            "waiting": Piece(
                "F32",
                (count, rows, self._shape.pending),
                stacked(lambda state: state.pending(rows)),
            ),
        }

    def fill(self, saved: Arrays, length: int) -> None:
        window, s, waiting = saved["window"], saved["s"], saved["waiting"]
        count, rows = len(self.states), waiting.shape[1] if waiting.ndim == 3 else 0
        if rows > min(ROOM, length):
            raise ValueError(f"{rows} rows wait of {length} tokens")
        expect(window, "float32", count, *self._shape.window)
        expect(s, "float32", count, *self._shape.s)
        expect(waiting, "float32", count, rows, self._shape.pending)
        for index, state in enumerate(self.states):
            state.put(window[index], s[index])
            state.put_pending(waiting[index])
        self._wait(rows)
        self._length, self._checkpoints = length, []

    def forget(self, start: int, stop: int, length: int) -> None:
        raise ValueError("what a recurrent layer was told cannot be taken out again")

    @property
    def _all_wait(self) -> bool:
        """Whether all rows of a trial do."""
        return self._in_trial and self._before is None

    def _wait(self, rows: int) -> None:
        """So many pending rows are kept, after a memory that does not know them."""
        self._waiting = self._loose = rows
        self._round += 1

    def _keep(self, rows: Sequence[int]) -> None:
        """Those pending rows."""
        if list(rows) != list(range(len(rows))):
            for state in self.states:
                state.gather(rows)
        self._wait(len(rows))

    def _undo_beyond(self, kept: Sequence[int], failed: bool) -> None:
        """Of a trial whose last rows alone wait."""
        taken = self._fed - self._waiting
        if kept and not failed and list(kept[:taken]) == list(range(taken)):
            self._keep([row - taken for row in kept[taken:]])
            return
        assert self._before is not None
        self._restore(self._before)
        self._wait(self._before.rows)
        self._length = self._before.base + self._before.rows
        if kept:
            raise ReadAgain

    def _find_out(self) -> None:
        """After a pass that failed: whether it took in what waited."""
        seen = [state.seen == self._round for state in self.states]
        if all(seen):
            self._wait(0)
        elif not any(seen):
            self._loose = self._waiting

    def _save(self) -> _Saved:
        """All states as they are, before anything of a trial that did not fail."""
        rows = 0 if self._fed and self._in_trial else self._waiting
        base = self._length - (self._fed if self._in_trial else 0) - rows
        return _Saved(base, rows, [state.save(rows) for state in self.states])

    def _restore(self, saved: _Saved) -> None:
        for state, copy in zip(self.states, saved.states, strict=True):
            state.restore(copy)

    def _checkpoints_below(self, length: int) -> list[_Saved]:
        return [each for each in self._checkpoints if each.base <= length]
