"""How a draft takes tokens in and gives tokens out: its own tables, or the model's."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from turbodflash_engine.drafters._block.config import BlockConfig
from turbodflash_engine.drafters._block.layout import EMBEDDING, HEAD, HEAD_TOKENS
from turbodflash_engine.errors import BadModel
from turbodflash_engine.layers.tensors import INCOMPLETE, Tensors
from turbodflash_engine.models._base import Shared
from turbodflash_kernels.device import Device, Weight

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


def read_words(device: Device, tensors: Tensors, config: BlockConfig, target: Shared) -> Words:
    """Raises BadModel where the tables do not cover the model's tokens."""
    embedding = _own(device, tensors, EMBEDDING, config.width)
    head = _own(device, tensors, HEAD, config.width) or embedding or target.head
    embedding = embedding or target.embedding
    check_covers(config, EMBEDDING, embedding, target.vocabulary)
    if config.mask >= embedding.rows:
        raise BadModel(
            f"'{config.source}' has the mask token {config.mask}, but its embeddings, "
            f"which are the model's, end at {embedding.rows - 1}",
            hint="convert the draft again with its own embeddings",
        )
    return Words(embedding, head, _row_tokens(tensors, config, head, target), target.vocabulary)


def check_covers(config: BlockConfig, name: str, table: Weight, vocabulary: int) -> None:
    """Raises BadModel unless the table has a row for each of the model's tokens."""
    if table.rows < vocabulary:
        raise BadModel(
            f"'{config.source}': tensor '{name}' has {table.rows:,} rows, "
            f"fewer than the model has tokens, {vocabulary:,}",
            hint=INCOMPLETE,
        )


def _own(device: Device, tensors: Tensors, name: str, width: int) -> Weight | None:
    return device.pack([tensors.part(name)], width) if name in tensors else None


def _row_tokens(
    tensors: Tensors, config: BlockConfig, head: Weight, target: Shared
) -> NDArray[np.int64] | None:
    if HEAD_TOKENS not in tensors:
        return None
    tokens = tensors.ids(HEAD_TOKENS)
    if len(tokens) != head.rows:
        raise BadModel(
            f"'{config.source}': tensor '{HEAD_TOKENS}' names {len(tokens):,} tokens "
            f"for a head of {head.rows:,} rows",
            hint=INCOMPLETE,
        )
    lowest, highest = tokens.min(), tokens.max()
    if lowest < 0 or highest >= target.vocabulary or len(np.unique(tokens)) < len(tokens):
        raise BadModel(
            f"'{config.source}': tensor '{HEAD_TOKENS}' has tokens from {lowest} to {highest}, "
            f"expected different ones of 0 to {target.vocabulary - 1}",
            hint=INCOMPLETE,
        )
    return tokens
