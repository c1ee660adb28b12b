"""What passes and drafts cost, measured as they happen, on a machine that is never quiet."""

from __future__ import annotations

from bisect import bisect, insort
from collections import defaultdict, deque
from collections.abc import Callable

WINDOW = 16  # measurements of one size that are remembered
ROW = 0.18  # what one more row costs, of a pass of one, until it is measured
LEAST = 0.02  # the same, if the machine is as good as can be


class Costs:
    """Seconds by size, of something that was measured at some sizes.

    The first measurement of a size is not looked at: it is of work that later ones only repeat.
    Of the rest the lower quartile is taken: what disturbs a measurement makes it longer, never
    shorter. One alone is believed only of the first size: what costs too much is not tried again.
    """

    def __init__(self, scale: Callable[[float, int], float]) -> None:
        """scale(size, known): the cost of a size over that of one that was measured."""
        self._scale = scale
        self._measured: defaultdict[int, deque[float]] = defaultdict(lambda: deque(maxlen=WINDOW))
        self._typical: dict[int, float] = {}
        self._sizes: list[int] = []  # those with a typical cost, ascending
        self._said: dict[float, float] = {}  # since the last measurement

    def add(self, size: int, seconds: float) -> None:
        """One more measurement."""
        if size not in self._measured:
            self._measured[size].clear()
            return
        self._measured[size].append(seconds)
        ordered = sorted(self._measured[size])
        if self._sizes and len(ordered) == 1:
            return
        if size not in self._typical:
            insort(self._sizes, size)
        self._said.clear()
        self._typical[size] = ordered[len(ordered) // 4]

    def times(self, size: int) -> int:
        """How many measurements of this size are remembered."""
        return len(self._measured[size]) if size in self._measured else 0

    def __contains__(self, size: int) -> bool:
        """Whether this size was measured."""
        return size in self._typical

    def __call__(self, size: float) -> float | None:
        """Seconds, in proportion between two sizes that were measured; None when none was."""
        if not self._sizes:
            return None
        if size not in self._said:
            self._said[size] = self._between(size)
        return self._said[size]

    def _between(self, size: float) -> float:
        at = bisect(self._sizes, size)
        below, above = self._sizes[max(at - 1, 0)], self._sizes[min(at, len(self._sizes) - 1)]
        if not below <= size < above:
            return self._typical[below] * self._scale(size, below)
        share = (size - below) / (above - below)
        return (1 - share) * self._typical[below] + share * self._typical[above]


class Passes(Costs):
    """Of passes of a model, by rows."""

    def __init__(self) -> None:
        super().__init__(by_rows)
        self.plain: float | None = None

    def add(self, size: int, seconds: float) -> None:
        """plain: seconds of one row, as measured, or less where a longer pass proves it."""
        super().add(size, seconds)
        bounds = [known / (1 + LEAST * (rows - 1)) for rows, known in self._typical.items()]
        if 1 in self:
            self.plain = min(bounds)


def by_rows(rows: float, known: int) -> float:
    """Of passes: a first row costs most, further ones the same each."""
    return (1 + ROW * (rows - 1)) / (1 + ROW * (known - 1))


def by_tokens(tokens: float, known: int) -> float:
    """Of drafts, the best that is possible: fewer tokens in proportion, more for nothing."""
    return min(tokens / known, 1.0)
