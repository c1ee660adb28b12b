"""What is handed to verification: a chain of drafted tokens, or a tree of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Guess(NamedTuple):
    """Rows of one pass: row 0 is the last token said, the others were drafted.

    tokens: drafted, of rows 1 to n. parents: of all rows, each an earlier one, -1 of row 0; None
    for a chain, where each row follows the one before it.
    """

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] | None = None

    def after(self, row: int) -> range | Sequence[int]:
        """The rows that guess what follows a row."""
        if self.parents is None:
            return range(row + 1, min(row + 2, len(self.tokens) + 1))
        return [child for child, parent in enumerate(self.parents) if parent == row]

    def token(self, row: int) -> int:
        """The token of a row that was drafted."""
        return self.tokens[row - 1]

    @property
    def depth(self) -> int:
        """The length of the longest chain of drafted tokens in it."""
        if self.parents is None:
            return len(self.tokens)
        depths = [0]
        for parent in self.parents[1:]:
            depths.append(depths[parent] + 1)
        return max(depths)


NOTHING = Guess()
"""Plain decoding."""
