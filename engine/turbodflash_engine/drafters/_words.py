"""How a draft gives tokens out: what the rows of its head stand for."""

from __future__ import annotations

from itertools import takewhile
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from turbodflash_engine.errors import BadModel
from turbodflash_engine.layers.tensors import INCOMPLETE, Tensors
from turbodflash_kernels.device import Device, Weight

EMBEDDING, HEAD = "token_embd.weight", "output.weight"
HEAD_TOKENS = "d2t"
"""The tensor that names the model's token for each row of a head."""

Ids = NDArray[np.int32]


class Words(NamedTuple):
    """embedding: [tokens, width]. head: [rows, width], applied to normed rows.

    row_tokens: the model's token for each row of the head; None = the row itself.
    vocabulary: the model's.
    """

    embedding: Weight
    head: Weight
    row_tokens: NDArray[np.int64] | None
    vocabulary: int

    def tokens(self, rows: Ids) -> Ids:
        """The model's tokens for rows of the head; -1 for a row that is none."""
        found = rows if self.row_tokens is None else self.row_tokens[rows]
        return np.where(found < self.vocabulary, found, -1).astype(np.int32)

    def chain(self, rows: Ids) -> tuple[int, ...]:
        """The model's tokens for rows [n] of the head, up to the first row that is none.

        After a pass the processor remembers little of numpy: for a few numbers it is a detour.
        """
        of = self.row_tokens
        tokens = [row if of is None else of.item(row) for row in rows.tolist()]
        return tuple(takewhile(lambda token: token < self.vocabulary, tokens))


def own_table(device: Device, tensors: Tensors, name: str, width: int) -> Weight | None:
    """A table that the draft's file may hold."""
    return device.pack([tensors.part(name)], width, searched=True) if name in tensors else None


def check_row_tokens(source: str, tokens: NDArray[np.int64], rows: int, vocabulary: int) -> None:
    """Raises BadModel unless they name a token of the model for each of so many rows."""
    if len(tokens) != rows:
        raise BadModel(
            f"'{source}': tensor '{HEAD_TOKENS}' names {len(tokens):,} tokens "
            f"for a head of {rows:,} rows",
            hint=INCOMPLETE,
        )
    lowest, highest = tokens.min(), tokens.max()
    if lowest < 0 or highest >= vocabulary or len(np.unique(tokens)) < len(tokens):
        raise BadModel(
            f"'{source}': tensor '{HEAD_TOKENS}' has tokens from {lowest} to {highest}, "
            f"expected 0 to {vocabulary - 1}, each at most once",
            hint=INCOMPLETE,
        )
