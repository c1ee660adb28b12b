"""Where a chat's messages come from: a line editor, plain lines, or a pipe."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from turbodflash_cli.compose import entered
from turbodflash_cli.terminal import Terminal
from turbodflash_engine import BadUsage


class Reader(Protocol):
    """Gives one message after another."""

    can_edit: bool
    """Whether `read` can offer a text to change."""

    def read(self, prompt: str, offered: str = "") -> str | None:
        """The next message; None = there are no more. Ctrl-C raises KeyboardInterrupt."""


class PlainReader:
    """Lines of stdin, without terminal tricks; in a pipe, without prompts."""

    can_edit = False

    def __init__(self, terminal: Terminal, multiline: bool = False) -> None:
        self._terminal = terminal
        self._multiline = multiline

    def read(self, prompt: str, offered: str = "") -> str | None:
        """The next message; None at the end of the input."""
        if self._terminal.in_tty:
            self._terminal.raw_err(prompt)
        so_far = ""
        while line := _next_line():
            sent, so_far = entered(so_far + line.rstrip("\r\n"), self._multiline)
            if sent:
                return so_far
        return so_far.rstrip("\n") or None


def _next_line() -> str:
    try:
        return sys.stdin.readline()
    except UnicodeDecodeError as error:
        raise BadUsage(
            f"the piped text is not UTF-8 (byte {error.start}).", hint="convert it to UTF-8"
        ) from error


def open_reader(
    terminal: Terminal, *, history: bool, multiline: bool, commands: Sequence[str]
) -> Reader:
    """A line editor for a person at a terminal, else plain lines."""
    if terminal.simple or not (terminal.in_tty and terminal.err_tty):
        return PlainReader(terminal, multiline)
    from turbodflash_cli.editor import Editor

    return Editor(history_file() if history else None, multiline, commands)


def history_file() -> Path | None:
    """Where typed messages are kept; None if that place cannot be written."""
    file = state_folder() / "history"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600)
    except OSError:
        return None
    return file


def state_folder() -> Path:
    """The folder of this user for what a program remembers."""
    if os.name == "nt":
        return Path(os.environ.get("APPDATA", Path.home())) / "turbodflash"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "turbodflash"
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "turbodflash"
