"""Greedy pair merging with a queue: the loop that every tokenizer model here ends in.

Text starts as characters. Of all neighbours that may merge, the pair with the least cost merges
first, the leftmost on ties, until none may. n characters take O(n log n).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush

Cost = Callable[[str, str], float | None]
"""What it costs to merge two neighbours: less is sooner, None is never."""

_REMEMBERED_CHARACTERS = 64
_REMEMBERED_PARTS = 1 << 15


def ranks(merges: Sequence[str]) -> dict[str, int]:
    """The place of each "left right" in the list of merges; the first of equals counts."""
    last = len(merges) - 1
    return dict(zip(reversed(merges), range(last, -1, -1), strict=True))


def merge(text: str, cost: Cost) -> list[str]:
    """The symbols that remain of `text`, in order; joined they are `text`."""
    symbols = list(text)
    size = len(symbols)
    after = list(range(1, size + 1))
    before = list(range(-1, size - 1))
    queue: list[tuple[float, int, int, str]] = []

    def offer(left: int, right: int) -> None:
        if left >= 0 and right < size:
            price = cost(symbols[left], symbols[right])
            if price is not None:
                heappush(queue, (price, left, right, symbols[left] + symbols[right]))

    for left in range(size - 1):
        offer(left, left + 1)

    while queue:
        _, left, right, whole = heappop(queue)
        if not symbols[left] or not symbols[right] or symbols[left] + symbols[right] != whole:
            continue  # one of the two has merged with somebody else since
        symbols[left], symbols[right] = whole, ""
        after[left] = right = after[right]
        if right < size:
            before[right] = left
        offer(before[left], left)
        offer(left, right)
    return [symbol for symbol in symbols if symbol]


class PartEncoder:
    """Ids of a part of text that merges by itself; parts seen before are remembered."""

    def __init__(
        self, cost: Cost, spell: Callable[[str], list[int]], whole: Mapping[str, int]
    ) -> None:
        """spell: the ids of one symbol that remains; whole: parts taken without merging."""
        self._cost = cost
        self._spell = spell
        self._whole = whole
        self._seen: dict[str, list[int]] = {}

    def __call__(self, part: str) -> list[int]:
        ids = self._seen.get(part)
        if ids is None:
            ids = self._encode(part)
            if len(part) <= _REMEMBERED_CHARACTERS:
                if len(self._seen) >= _REMEMBERED_PARTS:
                    self._seen.clear()
                self._seen[part] = ids
        return ids

    def _encode(self, part: str) -> list[int]:
        if part in self._whole:
            return [self._whole[part]]
        return [id for symbol in merge(part, self._cost) for id in self._spell(symbol)]
