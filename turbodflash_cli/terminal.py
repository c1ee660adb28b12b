"""The two streams: text to stdout, everything else to stderr; and who of them may have colours."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from typing import TextIO

from turbodflash_engine import TurbodflashError

DIM, RED, YELLOW, BOLD, PLAIN = "\x1b[2m", "\x1b[31m", "\x1b[33m", "\x1b[1m", "\x1b[0m"

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""C0 and C1 but newline and tab: a model shall not retitle or clear a person's terminal."""


class ClosedPipe(TurbodflashError):
    """Whoever read our output has left; there is nobody to tell."""

    exit_code = 141


class Terminal:
    """What this run writes to. `color` is on, off or auto, as the option says."""

    def __init__(self, color: str = "auto", simple: bool = False, verbose: bool = False) -> None:
        self.verbose = verbose
        self.simple = simple or _dumb()
        self.in_tty, self.out_tty, self.err_tty = map(_is_tty, (sys.stdin, sys.stdout, sys.stderr))
        self.out_color = may_color(color, self.out_tty)
        self.err_color = may_color(color, self.err_tty)
        self.at_line_start = True

    def write(self, piece: str) -> None:
        """Generated text, at once; on a terminal without control characters."""
        if self.out_tty:
            piece = _CONTROLS.sub("", piece)
        if piece:
            self.at_line_start = piece.endswith("\n")
            self._out(piece)

    def dim(self, on: bool) -> None:
        """Switch faint letters of stdout on or off."""
        if self.out_color:
            self._out(DIM if on else PLAIN)

    def end_line(self) -> None:
        """A newline on stdout, unless it stands at the start of a line."""
        if not self.at_line_start:
            self.write("\n")

    def say(self, line: str = "", style: str = "") -> None:
        """A line on stderr."""
        if style and self.err_color:
            line = f"{style}{line}{PLAIN}"
        self._err(f"{line}\n")

    def raw_err(self, text: str) -> None:
        """Characters to stderr as they are: the progress line."""
        self._err(text)

    def note(self, line: str) -> None:
        """A remark in passing."""
        self.say(line, DIM)

    def warn(self, sentence: str) -> None:
        """Something the person should know, though the work goes on."""
        self._labelled("warning:", YELLOW, sentence)

    def fail(self, error: TurbodflashError) -> None:
        """What went wrong, and what to do about it."""
        self._labelled("error:", RED, _ended(str(error)))
        if error.hint:
            self._labelled("hint:", BOLD, error.hint.removesuffix("."))

    def detail(self, line: str) -> None:
        """A line that only `-v` shows."""
        if self.verbose:
            self.note(line)

    def _labelled(self, label: str, style: str, words: str) -> None:
        painted = f"{style}{label}{PLAIN}" if self.err_color else label
        self._err(f"{painted} {words}\n")

    def _out(self, text: str) -> None:
        try:
            _put(sys.stdout, text)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise TurbodflashError(f"cannot write the answer: {error.strerror}.") from error

    def _err(self, text: str) -> None:
        with suppress(OSError):  # nobody listens: the answer still counts
            _put(sys.stderr, text)


def may_color(color: str, tty: bool) -> bool:
    """`--color` beats NO_COLOR beats FORCE_COLOR beats what the stream is."""
    if color != "auto":
        return color == "on"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR") or os.environ.get("TTY_COMPATIBLE") == "1":
        return True
    return tty and not _dumb()


def prepare_streams() -> None:
    """Make every character printable, and every pipe readable, whatever the system's encoding.

    A stream that the caller closed leads nowhere; else the next file opened would take its place.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(encoding="utf-8", errors="replace")
    reconfigure = getattr(sys.stdin, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(encoding="utf-8", errors="strict")


def _ended(sentence: str) -> str:
    """With a full stop, unless it ends so already or in a path, which people copy."""
    last = sentence.rpartition(" ")[2]
    return sentence if any(each in last for each in "./\\!?") else f"{sentence}."


def _dumb() -> bool:
    return os.environ.get("TERM", "") in ("dumb", "unknown")


def _is_tty(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def _put(stream: TextIO, text: str) -> None:
    stream.write(text)
    stream.flush()
