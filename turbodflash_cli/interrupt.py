"""Ctrl-C while an answer is made: the first asks it to end, the second leaves at once."""

from __future__ import annotations

import os
import signal
import threading
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


class Interrupt:
    """A flag that signals raise, so that a step of the model is never torn apart.

    Use as a context; ask `asked` between two steps. terminated: the program shall end as well.
    """

    def __init__(self) -> None:
        self.asked = False
        self.terminated = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _take(self, number: int, frame: FrameType | None) -> None:
        if self.asked:  # the step is stuck, and with it Python's own way out
            if os.isatty(2):
                os.write(2, SHOW_CURSOR)
            os._exit(CODE)
        self.asked = True
        self.terminated = number == signal.SIGTERM
