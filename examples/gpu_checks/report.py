"""What a section may use, and what it says when it is over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from time import perf_counter
from traceback import format_exc
from typing import Any

MOST_FAILURES = 20  # kept in words; the rest are counted


@dataclass
class Report:
    """checked: comparisons that were made. cut: time was over before all of them were."""

    failures: list[str] = field(default_factory=list)
    failed: int = 0
    checked: int = 0
    cut: bool = False
    seconds: float = 0.0
    figures: dict[str, Any] = field(default_factory=dict)

    def check(self, good: bool, otherwise: str) -> None:
        """otherwise: what it means if it is not good."""
        self.checked += 1
        if not good:
            self.fail(otherwise)

    def fail(self, words: str) -> None:
        self.failed += 1
        if len(self.failures) < MOST_FAILURES:
            self.failures.append(words)

    def trying(self, what: str, attempt: Callable[[], None]) -> None:
        """An error in one attempt does not end the others."""
        try:
            attempt()
        except Exception:
            self.checked += 1
            self.fail(f"{what}: {format_exc(limit=-3)}")


@dataclass(frozen=True)
class Setting:
    """device: the name of the one that is checked. real: shapes of real models, not of toys."""

    device: str
    real: bool
    report: Report
    ends: float

    def over(self) -> bool:
        """Whether the section's time is over; what is left out is noted."""
        if perf_counter() < self.ends:
            return False
        self.report.cut = True
        return True


Section = Callable[[Setting], None]


def run(section: Section, device: str, seconds: float, *, real: bool) -> Report:
    """Run a section for so long at most, or as long as its last step takes."""
    began, report = perf_counter(), Report()
    setting = Setting(device, real, report, began + seconds)
    report.trying(section.__name__, lambda: section(setting))
    report.seconds = round(perf_counter() - began, 1)
    return report


def as_json(report: Report) -> dict[str, Any]:
    """ok: nothing failed, and something was done."""
    done = bool(report.checked or report.figures)
    return {"ok": done and not report.failed, **asdict(report)}
