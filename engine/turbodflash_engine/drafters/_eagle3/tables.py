"""The tables of an EAGLE-3 draft: its own, or the model's."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from turbodflash_engine.drafters._eagle3.config import Eagle3Config
from turbodflash_engine.drafters._fit import ANOTHER
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
from turbodflash_kernels.device import Device


def read_words(device: Device, tensors: Tensors, config: Eagle3Config, target: Shared) -> Words:
    """Raises BadModel where a table is missing or does not fit the others."""
    for name in (EMBEDDING, HEAD):
        if name not in tensors and config.width != target.width:
            raise BadModel(
                f"'{config.source}' has no tensor '{name}', and that of the model has rows of "
                f"{target.width}, but the draft's width is {config.width}",
                hint=ANOTHER,
            )
    embedding = own_table(device, tensors, EMBEDDING, config.width) or target.embedding.on(device)
    head = own_table(device, tensors, HEAD, config.width) or target.head.on(device)
    if HEAD_TOKENS in tensors:
        tokens = absolute(tensors.ids(HEAD_TOKENS))
        check_row_tokens(config.source, tokens, head.rows, target.vocabulary)
        return Words(embedding, head, tokens, target.vocabulary)
    if head.rows < target.vocabulary:
        raise BadModel(
            f"'{config.source}' drafts {head.rows:,} of the model's {target.vocabulary:,} tokens, "
            f"but has no tensor '{HEAD_TOKENS}' to say which",
            hint=INCOMPLETE,
        )
    return Words(embedding, head, None, target.vocabulary)


def absolute(tokens: NDArray[np.int64]) -> NDArray[np.int64]:
    """The model's token for each row of the head.

    Old files have what is to be added to the row's number instead: then values do not ascend.
    """
    return tokens if (np.diff(tokens) > 0).all() else tokens + np.arange(len(tokens))
