"""The tables of a block draft: its own, or the model's."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from turbodflash_engine.drafters._block.config import BlockConfig
from turbodflash_engine.drafters._words import (
    EMBEDDING,
    HEAD,
    HEAD_TOKENS,
    Words,
    check_row_tokens,
    own_table,
)
from turbodflash_engine.errors import BadModel
from turbodflash_engine.layers.tensors import INCOMPLETE, Tensors
from turbodflash_engine.models._base import Shared
from turbodflash_kernels.device import Device, Weight


def read_words(device: Device, tensors: Tensors, config: BlockConfig, target: Shared) -> Words:
    """Raises BadModel where the tables do not cover the model's tokens."""
    embedding = own_table(device, tensors, EMBEDDING, config.width)
    head = own_table(device, tensors, HEAD, config.width) or embedding or target.head.on(device)
    embedding = embedding or target.embedding.on(device)
    check_covers(config, EMBEDDING, embedding, target.vocabulary)
    if config.mask >= embedding.rows:
        raise BadModel(
            f"'{config.source}' has the mask token {config.mask}, but its embeddings, "
            f"which are the model's, end at {embedding.rows - 1}",
            hint="convert the draft again with its own embeddings",
        )
    return Words(embedding, head, _row_tokens(tensors, config, head, target), target.vocabulary)


def check_covers(config: BlockConfig, name: str, table: Weight, tokens: int) -> None:
    """Raises BadModel unless the table has a row for each of so many tokens."""
    if table.rows < tokens:
        raise BadModel(
            f"'{config.source}': tensor '{name}' has {table.rows:,} rows, "
            f"fewer than there are tokens, {tokens:,}",
            hint=INCOMPLETE,
        )


def _row_tokens(
    tensors: Tensors, config: BlockConfig, head: Weight, target: Shared
) -> NDArray[np.int64] | None:
    if HEAD_TOKENS not in tensors:
        return None
    tokens = tensors.ids(HEAD_TOKENS)
    check_row_tokens(config.source, tokens, head.rows, target.vocabulary)
    return tokens
