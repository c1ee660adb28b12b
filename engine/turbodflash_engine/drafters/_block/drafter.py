"""What the drafters of blocks share: how they come to be, what they see, and when they pass."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from turbodflash_engine.cache.pieces import Arrays, Pieces
from turbodflash_engine.drafters._base import NO_DRAFT, Draft, Rows, Setting
from turbodflash_engine.drafters._block.backbone import Backbone, norm_of
from turbodflash_engine.drafters._block.config import BlockConfig
from turbodflash_engine.drafters._block.context import Context
from turbodflash_engine.drafters._block.tables import read_words
from turbodflash_engine.layers.head import Head
from turbodflash_engine.layers.rope import DIVISORS
from turbodflash_engine.layers.tensors import Tensors
from turbodflash_kernels.op import Array


class BlockDrafter(ABC):
    """Drafts all tokens of a block in one pass, from what it saw of the model's own residual rows.

    The block's length depends on n_max alone: it changes what is drafted, so a caller that wants
    fewer tokens gets the first of the same ones.
    """

    name: str

    def __init__(
        self, config: BlockConfig, tensors: Tensors, setting: Setting, *, anchor_predicts: bool
    ) -> None:
        """anchor_predicts: row i of the block predicts position i + 1 of it, otherwise i."""
        device, options = setting.device, setting.options
        self.taps = config.taps
        self.longest = longest(config, options.n_max, anchor_predicts)
        self._first = 0 if anchor_predicts else 1
        self._block = self.longest + self._first
        self._masks = np.full(self._block, config.mask, np.int32)
        self._device = device
        self._options = options
        self._words = read_words(device, tensors, config, setting.target)
        divisors = DIVISORS in tensors and config.divided
        rope = config.rope.rope(
            "neox", config.n_rot, tensors.vector(DIVISORS) if divisors else None
        )
        self._context = Context(
            device, tensors, config, rope, setting.plan, options, block=config.block
        )
        self._backbone = Backbone(device, tensors, config, rope, self._words, self._context)
        self._norm = norm_of(device, tensors, "output_norm", config)
        self._head = Head(device, self._words.head, self._norm)
        self._weight_bytes = tensors.weight_bytes(device.bytes_per_weight)

    @property
    def nbytes(self) -> int:
        return self._weight_bytes + self._context.nbytes

    def draft(self, history: Sequence[int], width: int) -> Draft:
        if not self.longest or not self._context.complete:
            return NO_DRAFT
        self._context.store()
        tokens = self._masks.copy()
        tokens[0] = history[-1]
        start = self._context.length
        positions = np.arange(start, start + self._block, dtype=np.int32)
        draft = self._guess(tokens, positions, min(width, self.longest))
        return draft if self._options.tree else Draft(draft.tokens)

    def _hidden(self, count: int, tokens: Array, positions: Array) -> Array:
        """The rows of the block that predict the first `count` tokens, not normed yet."""
        return self._backbone(tokens, positions, slice(self._first, self._first + count))

    @abstractmethod
    def _guess(self, tokens: NDArray[np.int32], positions: NDArray[np.int32], count: int) -> Draft:
        """At most `count` tokens after the first of these, which stand at these positions.

        All else that is known of them comes along.
        """

    def observe(
        self, tokens: Sequence[int], positions: range, taps: Sequence[Rows], coming: int = 0
    ) -> None:
        self._context.observe(positions, taps, coming)

    def truncate(self, length: int) -> None:
        self._context.truncate(length)

    def forget(self, start: int, stop: int) -> None:
        self._context.forget(start, stop)

    @property
    def form(self) -> str:
        return self._context.form

    def pieces(self) -> Pieces:
        return self._context.pieces()

    def resume(self, tokens: Sequence[int], saved: Arrays) -> None:
        self._context.resume(len(tokens), saved)


def longest(config: BlockConfig, n_max: int | None, anchor_predicts: bool) -> int:
    """Tokens that a block drafts: all it was trained for, or fewer if a person says so."""
    trained = config.block if anchor_predicts else config.block - 1
    return trained if n_max is None else min(n_max, trained)
