"""Ctrl-C while an answer is made: the first asks it to end, the second leaves at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

CODE = 130
SHOW_CURSOR = b"\x1b[?25h\x1b[0m\n"


class Terminated(KeyboardInterrupt):
    """The program was told to end, not only the answer."""


def obey_termination() -> None:
    """Let a polite kill unwind like Ctrl-C, so that files and terminal are left in order."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _terminate)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated


@contextmanager
def leaving_at_once(clear: Callable[[], None]) -> Iterator[None]:
    """A signal ends the program on the spot, after `clear`; for work that other threads share.

    An exception could rise where a lock is held that one of them waits for, and unwinding would
    wait for that thread.
    """

    def leave(number: int, frame: FrameType | None) -> None:
        with suppress(RuntimeError):  # the signal came in the middle of a write to the same stream
            clear()
        os._exit(CODE)

    before = _handled_by(leave)
    try:
        yield
    finally:
        _restore(before)


class Interrupt:
    """A flag that signals raise, so that a step of the model is never torn apart.

    Use as a context; ask `asked` between two steps. terminated: the program shall end as well.
    """

    def __init__(self) -> None:
        self.asked = False
        self.terminated = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupt:
        self._before = _handled_by(self._take)
        return self

    def __exit__(self, *exception: object) -> None:
        _restore(self._before)

    def _take(self, number: int, frame: FrameType | None) -> None:
        if self.asked:  # the step is stuck, and with it Python's own way out
            if os.isatty(2):
                os.write(2, SHOW_CURSOR)
            os._exit(CODE)
        self.asked = True
        self.terminated = number == signal.SIGTERM


def _handled_by(handler: Callable[[int, FrameType | None], None]) -> dict[int, Any]:
    """Let it handle both ways to be told to stop; the result is who did before, for `_restore`."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    return {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}


def _restore(before: dict[int, Any]) -> None:
    for number, handler in before.items():
        signal.signal(number, signal.SIG_DFL if handler is None else handler)
