"""DFlash: a block of masks after the last token, each filled in from the model's residual rows.

DFlash2 is the same with convolutions in its layers and a selector over its best candidates.
"""

from __future__ import annotations

from collections.abc import Container

import numpy as np
from numpy.typing import NDArray

from turbodflash_engine.drafters._base import Draft, Drafter, FileKind, Setting, threads_of
from turbodflash_engine.drafters._block.config import BlockConfig, read_block
from turbodflash_engine.drafters._block.dialects import ARCHITECTURES
from turbodflash_engine.drafters._block.drafter import BlockDrafter
from turbodflash_engine.drafters._block.fit import check_block, notes_on_block
from turbodflash_engine.drafters._block.layout import PACKED_TWICE, block_layout
from turbodflash_engine.drafters._block.markov import MARKOV
from turbodflash_engine.drafters._block.selector import Selection, selector_layout
from turbodflash_engine.drafters._guesses import draft_of, log_softmax, looked_at, probabilities
from turbodflash_engine.layers.steps import Steps
from turbodflash_engine.layers.tensors import Layout, Tensors
from turbodflash_engine.metadata import Metadata
from turbodflash_kernels.op import Array

Ids = NDArray[np.int32]


class Dflash(BlockDrafter):
    """Row i of the block predicts its position i; row 0 is the last token itself."""

    name = "draft-dflash"

    def __init__(self, config: BlockConfig, tensors: Tensors, setting: Setting) -> None:
        super().__init__(config, tensors, setting, anchor_predicts=False)
        rows = self._words.head.rows
        self._best = self._head.best(looked_at(setting.options, rows), rows)
        self._steps: Steps[int, tuple[Array, Array]] = Steps(
            setting.device, self._pass, threads_of(setting.options)
        )

    def _pass(self, count: int, tokens: Array, positions: Array) -> tuple[Array, Array]:
        return self._best(self._hidden(count, tokens, positions))

    def _guess(self, tokens: Ids, positions: Ids, count: int) -> Draft:
        values, rows = self._steps(count, tokens, positions)
        if rows.shape[1] == 1:
            return Draft(self._words.chain(self._device.read(rows)[:, 0]))
        log_probs = log_softmax(self._device.read(values))
        best = self._words.tokens(self._device.read(rows))
        return draft_of(best, log_probs, probabilities(log_probs), self._options.p_min)


class Dflash2(BlockDrafter):
    """The best few of each row, and the path through them that a table of pairs likes best."""

    name = "draft-dflash"

    def __init__(self, config: BlockConfig, tensors: Tensors, setting: Setting) -> None:
        super().__init__(config, tensors, setting, anchor_predicts=False)
        assert config.selector is not None
        rows = self._words.head.rows
        self._best = self._head.best(min(config.selector.top, rows), rows)
        threads = threads_of(setting.options)
        self._selection = Selection(
            setting.device, tensors, config, self._norm, self._words, threads
        )
        self._steps: Steps[int, tuple[Array, ...]] = Steps(
            setting.device, self._pass, threads_of(setting.options)
        )

    def _pass(self, count: int, tokens: Array, positions: Array) -> tuple[Array, ...]:
        x = self._hidden(count, tokens, positions)
        return (*self._best(x), self._selection.gate(x))

    def _guess(self, tokens: Ids, positions: Ids, count: int) -> Draft:
        values, rows, gates = self._steps(count, tokens, positions)
        candidates = self._words.tokens(self._device.read(rows))
        logits, gate = self._device.read(values).copy(), self._device.read(gates).copy()
        lattice = self._selection.lattice(int(tokens[0]), candidates, logits, gate)
        best, log_probs = self._selection.walk(candidates, lattice)
        return draft_of(best, log_probs, probabilities(log_probs), self._options.p_min)


def claims(metadata: Metadata, names: Container[str]) -> bool:
    return metadata.architecture in ARCHITECTURES and MARKOV[0] not in names


def layout(config: BlockConfig, present: Container[str]) -> Layout:
    wanted = block_layout(config, present)
    wanted.add(selector_layout(config, present))
    return wanted


def build(config: BlockConfig, tensors: Tensors, setting: Setting) -> Drafter:
    kind = Dflash2 if config.selector is not None else Dflash
    return kind(config, tensors, setting)


PLUGIN = FileKind(claims, read_block, check_block, layout, build, notes_on_block, PACKED_TWICE)
