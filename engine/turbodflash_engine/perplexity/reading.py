"""A text read window by window, and what is done with the logits of its scored rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from turbodflash_engine.errors import TurbodflashError
from turbodflash_engine.events import Progress
from turbodflash_engine.models._base import Model
from turbodflash_engine.perplexity.base_file import BaseFile, BaseWriter
from turbodflash_engine.perplexity.estimates import perplexity
from turbodflash_engine.perplexity.likely import Difference, Likely, compare, join, keep
from turbodflash_engine.perplexity.scoring import Logits, Scores, Values, score
from turbodflash_engine.perplexity.windows import Pass, Windows, passes

MOST_LOGITS = 2**24
"""Bytes of logits of one pass: few enough for a large cache to hold them until they are read."""

Report = Callable[[Progress], None]


class Watcher(Protocol):
    """Sees the scored rows of every window, in order."""

    def rows(self, start: int, logits: Logits, scores: Scores) -> None:
        """Scored rows start, start + 1, ... of the window; the logits hold during the call."""

    def window(self, index: int) -> None:
        """Before the rows of window `index`."""

    def done(self) -> None:
        """After the last window."""


class Recorder:
    """Writes the distributions."""

    def __init__(self, out: BaseWriter) -> None:
        self._out = out
        self._parts: list[Likely] = []

    def window(self, index: int) -> None:
        self.done()

    def rows(self, start: int, logits: Logits, scores: Scores) -> None:
        self._parts.append(keep(logits, scores))

    def done(self) -> None:
        if self._parts:
            self._out.add(join(self._parts))
        self._parts = []


class Comparer:
    """Measures how far the rows are from a base."""

    def __init__(self, base: BaseFile) -> None:
        self._base = base
        self._likely: Likely | None = None
        self._found: list[Difference] = []

    def window(self, index: int) -> None:
        self._likely = self._base.next()

    def rows(self, start: int, logits: Logits, scores: Scores) -> None:
        assert self._likely is not None
        self._found.append(compare(self._likely, start, logits, scores))

    def done(self) -> None:
        self._likely = None

    @property
    def difference(self) -> Difference:
        """Of all rows seen."""
        return Difference(*(np.concatenate(each) for each in zip(*self._found, strict=True)))


class Silent:
    """Watches nothing."""

    def window(self, index: int) -> None: ...
    def rows(self, start: int, logits: Logits, scores: Scores) -> None: ...
    def done(self) -> None: ...


def read_windows(
    model: Model,
    windows: Windows,
    watcher: Watcher,
    progress: Report | None = None,
    *,
    ubatch: int = 512,
    stage: str = "perplexity",
) -> Values:
    """f64[windows, scored]: the negative log-probability of every scored token.

    The cache is left empty. Reports tokens after each pass, with the perplexity up to and with the
    last whole window.
    """
    report = progress or (lambda event: None)
    most = MOST_LOGITS // (4 * model.vocabulary)
    plan = passes(windows.length, windows.first, ubatch=ubatch, most=most)
    nll = np.empty((windows.count, windows.scored))
    total = windows.tokens.size
    report(Progress(stage, 0, total, "tokens"))
    note = ""
    for index in range(windows.count):
        watcher.window(index)
        model.cache.truncate(0)
        for each in plan:
            _read(model, windows, index, each, nll[index], watcher)
            if each.stop < windows.length - 1:
                done = index * windows.length + each.stop
                report(Progress(stage, done, total, "tokens", note))
        note = f"PPL {perplexity(nll[: index + 1].ravel()).value:.4f}"
        report(Progress(stage, (index + 1) * windows.length, total, "tokens", note))
    watcher.done()
    model.cache.truncate(0)
    return nll


def _read(
    model: Model, windows: Windows, index: int, each: Pass, nll: Values, watcher: Watcher
) -> None:
    tokens: Sequence[int] = windows.tokens[index, each.start : each.stop].tolist()
    logits = model(tokens, logits=each.logits).logits
    start = max(each.start, windows.first)
    if not each.logits or start >= each.stop:
        return
    logits = logits[start - each.stop :]
    scores = score(logits, windows.tokens[index, start + 1 : each.stop + 1])
    if not np.isfinite(scores.nll).all():
        raise TurbodflashError(
            f"the model's logits are not numbers in chunk {index + 1}",
            hint="its file may be damaged; try another source, or --device reference",
        )
    first = start - windows.first
    nll[first : first + len(logits)] = scores.nll
    watcher.rows(first, logits, scores)
