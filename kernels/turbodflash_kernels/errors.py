"""The root of the error tree, on the lowest floor, so that every floor can raise its own."""

from __future__ import annotations

from typing import ClassVar


class TurbodflashError(Exception):
    """A sentence to a person: what happened, with the value, and what was expected.

    `hint` says what to do about it. `exit_code` is what a command line program ends with.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class NoKernel(TurbodflashError):
    """No implementation of an op applies; the message lists each one's reason."""


class NoDevice(TurbodflashError):
    """The device that was asked for does not exist on this machine."""


class NoRoom(TurbodflashError):
    """The memory of a device is full."""
