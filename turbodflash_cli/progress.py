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
    """Draws how far long stages have come, which may overlap; `clear` leaves no trace.

    The line is that of the stage that reported last and is not over.
    """

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._live = terminal.err_tty and not terminal.simple
        self._began: dict[str, float] = {}
        self._open: dict[str, Progress] = {}  # the latest last
        self._drawn = 0.0

    def __call__(self, progress: Progress) -> None:
        """Take note of an event of the engine."""
        now = perf_counter()
        if progress.stage not in self._began:
            self._began[progress.stage] = now
            self._open_with(progress)
        self._open.pop(progress.stage, None)
        over = 0 < progress.total <= progress.done
        if not over:
            self._open[progress.stage] = progress
        if self._live and (over or _is_steps(progress) or now - self._drawn >= REDRAW):
            self._draw(now)

    def report(self, stage: str, done: int, total: int) -> None:
        """The same for byte counts, as downloads give them."""
        self(Progress(stage, done, total, "B"))

    def clear(self) -> None:
        """Remove the line, if one was drawn."""
        self._erase()
        self._began.clear()
        self._open.clear()

    def _open_with(self, progress: Progress) -> None:
        if self._terminal.verbose:
            self._erase()
            self._terminal.detail(_opening(progress))

    def _draw(self, now: float) -> None:
        for progress in reversed(self._open.values()):
            seconds = now - self._began[progress.stage]
            if seconds >= PATIENCE or _is_steps(progress):
                columns = shutil.get_terminal_size().columns
                self._terminal.raw_err(f"{ERASE}{bar_line(progress, seconds)[: columns - 1]}")
                self._drawn = now
                return
        self._erase()

    def _erase(self) -> None:
        if self._drawn:
            self._terminal.raw_err(ERASE)
        self._drawn = 0.0


def bar_line(progress: Progress, seconds: float) -> str:
    """`loading 7.9/18.9 GiB ━━━━ 1.8 GiB/s 0:06`, or `compiling kernels … 7`."""
    if _is_steps(progress):
        return f"{progress.stage} {progress.unit} … {progress.done}"
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
    if progress.note:
        parts.append(progress.note)
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


def _is_steps(progress: Progress) -> bool:
    """Whether each event is the beginning of something slow, nobody knows how often."""
    return not progress.total and not _is_bytes(progress.unit)


def _is_bytes(unit: str) -> bool:
    return unit.lower() in ("b", "byte", "bytes")
