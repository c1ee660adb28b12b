"""How likely it is that the first, the second, ... of some things in a row succeeds."""

from __future__ import annotations

MEMORY = 0.95  # what a try weighs against the next one at its place
OPTIMISM = 0.1  # how much of the doubt about a place is left for the next
PRIOR = 2.0  # how many of them the expectation is worth before there are any


class Rates:
    """For each place of a chain, how often it succeeds once all before it did.

    What is recent counts more. A place that was not often reached is expected to be like the one
    before it, and the first like `first`.
    """

    def __init__(self, first: float) -> None:
        self._first = first
        self._tries: list[float] = []
        self._hits: list[float] = []

    def add(self, hits: int, tries: int, memory: float = MEMORY) -> None:
        """One more chain: of the first `tries` places, `hits` succeeded, and then none."""
        while len(self._tries) < tries:
            self._tries.append(0.0)
            self._hits.append(0.0)
        for place in range(tries):
            self._tries[place] = self._tries[place] * memory + 1
            self._hits[place] = self._hits[place] * memory + (place < hits)

    def first(self, count: int) -> list[float]:
        """Of the first `count` places."""
        rates, expected = [], self._first
        for place in range(count):
            if place < len(self._tries):
                hits, tries = self._hits[place], self._tries[place]
                expected = (PRIOR * expected + hits) / (PRIOR + tries)
            rates.append(expected)
            expected += OPTIMISM * (1 - expected)
        return rates
