"""A tree of guesses: the nodes that are most likely to be reached, in one pass."""

from __future__ import annotations

from heapq import heappop, heappush

from turbodflash_engine.decode.guess import Guess
from turbodflash_engine.drafters._base import Draft


def plant(draft: Draft, nodes: int, deepest: int) -> Guess:
    """At most `nodes` drafted tokens, none deeper than `deepest`, as a tree.

    The draft's own tokens come first, as far as there is room: whatever their probabilities, they
    are its best guess as a whole. Others are added best first, by the sum of log-probabilities
    along their path; a node's siblings are the candidates of its position, whoever its parent is.
    """
    chain = draft.tokens[: min(nodes, deepest)]
    if draft.candidates is None or draft.log_probs is None:
        return Guess(chain)
    tree = _Tree(draft.candidates[:deepest].tolist(), draft.log_probs[:deepest].tolist())
    row = 0
    for token in chain:
        row = tree.add(row, token, tree.score(row, token))
    while len(tree.tokens) < nodes and tree.grow():
        pass
    return Guess(tuple(tree.tokens), tuple(tree.parents))


class _Tree:
    def __init__(self, candidates: list[list[int]], log_probs: list[list[float]]) -> None:
        """Of each position, best first; a candidate below 0 is none."""
        self._candidates, self._log_probs = candidates, log_probs
        self.tokens: list[int] = []
        self.parents = [-1]
        self._depths, self._scores = [0], [0.0]
        self._children: list[set[int]] = [set()]
        self._heap: list[tuple[float, int, int]] = []  # (minus the score, parent, rank)
        self._propose(0, 0)

    def score(self, parent: int, token: int) -> float:
        """Of a child, whose token may be none of the candidates: then it counts as the best."""
        depth = self._depths[parent]
        candidates = self._candidates[depth] if depth < len(self._candidates) else []
        rank = candidates.index(token) if token in candidates else 0
        return self._scores[parent] + (self._log_probs[depth][rank] if candidates else 0.0)

    def add(self, parent: int, token: int, score: float) -> int:
        """A new node's row."""
        row = len(self.parents)
        self.tokens.append(token)
        self.parents.append(parent)
        self._depths.append(self._depths[parent] + 1)
        self._scores.append(score)
        self._children[parent].add(token)
        self._children.append(set())
        self._propose(row, 0)
        return row

    def grow(self) -> bool:
        """Look at the best node that is not in the tree; False when there is none."""
        if not self._heap:
            return False
        score, parent, rank = heappop(self._heap)
        self._propose(parent, rank + 1)
        token = self._candidates[self._depths[parent]][rank]
        if token >= 0 and token not in self._children[parent]:
            self.add(parent, token, -score)
        return True

    def _propose(self, parent: int, rank: int) -> None:
        depth = self._depths[parent]
        if depth < len(self._candidates) and rank < len(self._candidates[depth]):
            score = self._scores[parent] + self._log_probs[depth][rank]
            heappush(self._heap, (-score, parent, rank))
