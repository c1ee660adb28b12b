"""The progress line: what it says, and when it stays away."""

from __future__ import annotations

import pytest

from tests.cli.fake import Stream
from turbodflash_cli import progress as module
from turbodflash_cli.progress import Bar, bar_line, size
from turbodflash_cli.terminal import Terminal
from turbodflash_engine import Progress

GIB = 1 << 30


class Clock:
    """A clock that stands until it is set."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "perf_counter", clock)
    return clock


def bar(monkeypatch: pytest.MonkeyPatch, tty: bool = True, verbose: bool = False) -> tuple:
    stream = Stream(tty=tty)
    monkeypatch.setattr("sys.stderr", stream)
    return Bar(Terminal("off", verbose=verbose)), stream


@pytest.mark.parametrize(
    ("event", "seconds", "line"),
    [
        (
            Progress("loading", 4 * GIB, 16 * GIB, "B"),
            2.0,
            "loading 4.0/16.0 GiB ━━━━━━╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌ 2.0 GiB/s 0:06",
        ),
        (
            Progress("prompt", 1024, 4096, "tokens"),
            2.0,
            "prompt 1024/4096 tokens ━━━━━━╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌ 512 tokens/s 0:06",
        ),
        (Progress("fetching", 3 << 20, 0, "bytes"), 1.5, "fetching 3.0 MiB 2.0 MiB/s"),
        (Progress("compiling", 0, 8, "kernels"), 0.0, "compiling 0/8 kernels " + "╌" * 24),
        (Progress("compiling", 7, 0, "kernels"), 9.0, "compiling kernels … 7"),
        (Progress("loading", 8, 8, "B"), 1.0, "loading 8.0/8 B " + "━" * 24 + " 8 B/s"),
        (
            Progress("perplexity", 512, 1024, "tokens", "PPL 18.2218"),
            1.0,
            f"perplexity 512/1024 tokens {'━' * 12}{'╌' * 12} 512 tokens/s 0:01 PPL 18.2218",
        ),
    ],
)
def test_what_it_says(event: Progress, seconds: float, line: str) -> None:
    assert bar_line(event, seconds) == line


def test_nothing_is_shown_for_what_is_quick(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    show, stream = bar(monkeypatch)
    show(Progress("loading", 0, 100, "B"))
    clock.now += 0.29
    show(Progress("loading", 99, 100, "B"))
    show.clear()
    assert stream.getvalue() == ""


def test_what_is_long_is_shown_and_removed(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    show, stream = bar(monkeypatch)
    show(Progress("loading", 0, 100, "B"))
    clock.now += 0.31
    show(Progress("loading", 50, 100, "B"))
    clock.now += 0.01
    show(Progress("loading", 51, 100, "B"))
    show.clear()
    assert stream.getvalue().count("loading") == 1
    assert stream.getvalue().startswith("\r\x1b[2Kloading 50.0/100 B")
    assert stream.getvalue().endswith("\r\x1b[2K")


def test_every_stage_has_its_own_patience(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    show, stream = bar(monkeypatch)
    show(Progress("loading", 0, 100, "B"))
    clock.now += 1
    show(Progress("warming up", 0, 1, "runs"))
    assert "warming" not in stream.getvalue()


def test_what_is_slow_each_time_is_shown_at_once(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    show, stream = bar(monkeypatch)
    show(Progress("compiling", 1, 0, "kernels"))
    show(Progress("compiling", 2, 0, "kernels"))
    lines = stream.getvalue().split("\r\x1b[2K")
    assert lines == ["", "compiling kernels … 1", "compiling kernels … 2"]


def test_a_stage_that_is_over_leaves_the_line_to_the_one_beside_it(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    show, stream = bar(monkeypatch)
    show(Progress("compiling", 3, 0, "kernels"))
    show(Progress("loading", 0, 100, "B"))
    clock.now += 0.4
    show(Progress("loading", 50, 100, "B"))
    assert stream.getvalue().rpartition("\x1b[2K")[2].startswith("loading 50.0/100 B")
    show(Progress("loading", 100, 100, "B"))
    assert stream.getvalue().endswith("\x1b[2Kcompiling kernels … 3")
    show.clear()
    assert stream.getvalue().endswith("\r\x1b[2K")


def test_a_new_stage_hides_no_details(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    show, stream = bar(monkeypatch, verbose=True)
    show(Progress("compiling", 1, 0, "kernels"))
    show(Progress("loading", 0, 8, "B"))
    assert "compiling kernels … 1\r\x1b[2Kloading 8 B\n" in stream.getvalue()


def test_never_in_a_pipe(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    show, stream = bar(monkeypatch, tty=False)
    show.report("fetching", 0, 100)
    clock.now += 9
    show.report("fetching", 50, 100)
    show.clear()
    assert stream.getvalue() == ""


def test_with_details_each_stage_is_a_line(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    show, stream = bar(monkeypatch, tty=False, verbose=True)
    for done in (0, 50, 100):
        show(Progress("loading", done, 100, "B"))
    show(Progress("compiling", 0, 0, "kernels"))
    assert stream.getvalue() == "loading 100 B\ncompiling\n"


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (98362432, "93.8 MiB"),
        (1 << 40, "1024.0 GiB"),
    ],
)
def test_sizes(count: int, words: str) -> None:
    assert size(count) == words
