"""One line on stderr that says how far something long has come; only for a person, only if long."""

from __future__ import annotations

import shutil
from time import perf_counter

from turbodflash_cli.terminal import Terminal
from turbodflash_engine import Progress

PATIENCE = 0.3
"""Seconds before anything is shown: what is quick needs no bar."""

REDRAW = 0.05
WIDTH = 24
ERASE = "\r\x1b[2K"


class Bar:
    """Draws the progress of one stage after another; `clear` leaves no trace."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._live = terminal.err_tty and not terminal.simple
        self._stage = ""
        self._began = self._drawn = 0.0

    def __call__(self, progress: Progress) -> None:
        """Take note of an event of the engine."""
        now = perf_counter()
        if progress.stage != self._stage:
            self.clear()
            self._stage, self._began = progress.stage, now
            self._terminal.detail(_opening(progress))
        if self._live and now - self._began >= PATIENCE and now - self._drawn >= REDRAW:
            self._drawn = now
            columns = shutil.get_terminal_size().columns
            line = bar_line(progress, now - self._began)[: columns - 1]
            self._terminal.raw_err(f"{ERASE}{line}")

    def report(self, stage: str, done: int, total: int) -> None:
        """The same for byte counts, as downloads give them."""
        self(Progress(stage, done, total, "B"))

    def clear(self) -> None:
        """Remove the line, if one was drawn."""
        if self._drawn:
            self._terminal.raw_err(ERASE)
        self._stage, self._drawn = "", 0.0


def bar_line(progress: Progress, seconds: float) -> str:
    """`loading 7.9/18.9 GiB ━━━━ 1.8 GiB/s 0:06`."""
    done, total = progress.done, max(progress.total, 0)
    speed = done / seconds if seconds > 0 else 0.0
    parts = [progress.stage, _amount(done, total, progress.unit)]
    if total:
        filled = round(WIDTH * min(done / total, 1.0))
        parts.append("━" * filled + "╌" * (WIDTH - filled))
    if speed:
        parts.append(f"{_quantity(speed, progress.unit)}/s")
        if total > done:
            left = round((total - done) / speed)
            parts.append(f"{left // 60}:{left % 60:02}")
    return " ".join(parts)


def size(count: float) -> str:
    """Bytes in the unit that reads well."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def _opening(progress: Progress) -> str:
    amount = _quantity(progress.total, progress.unit) if progress.total else ""
    return " ".join(filter(None, (progress.stage, amount)))


def _amount(done: int, total: int, unit: str) -> str:
    if not total:
        return _quantity(done, unit)
    if not _is_bytes(unit):
        return f"{done}/{total} {unit}"
    whole, name = size(total).split(" ")
    factor = total / float(whole) if float(whole) else 1.0
    return f"{done / factor:.1f}/{whole} {name}"


def _quantity(count: float, unit: str) -> str:
    return size(count) if _is_bytes(unit) else f"{count:.0f} {unit}"


def _is_bytes(unit: str) -> bool:
    return unit.lower() in ("b", "byte", "bytes")
