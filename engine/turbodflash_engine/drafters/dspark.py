"""DSpark: a block as DFlash has it, and a Markov head that lets each token know the one before."""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from turbodflash_engine.drafters._base import Draft, Drafter, FileKind, Setting, threads_of
from turbodflash_engine.drafters._block.config import BlockConfig, read_block
from turbodflash_engine.drafters._block.dialects import ARCHITECTURES
from turbodflash_engine.drafters._block.drafter import BlockDrafter
from turbodflash_engine.drafters._block.fit import check_block, notes_on_block
from turbodflash_engine.drafters._block.layout import PACKED_TWICE, block_layout
from turbodflash_engine.drafters._block.markov import (
    CONFIDENCE,
    MARKOV,
    Confidence,
    Markov,
    markov_layout,
)
from turbodflash_engine.drafters._guesses import draft_of, log_softmax, looked_at
from turbodflash_engine.errors import BadModel, BadUsage
from turbodflash_engine.layers.steps import Steps
from turbodflash_engine.layers.tensors import Layout, Tensors
from turbodflash_engine.metadata import Metadata
from turbodflash_engine.models._base import Form
from turbodflash_engine.options import SpecOptions
from turbodflash_kernels.op import Array

Ids = NDArray[np.int32]


class _Row(NamedTuple):
    """values f32[1, k] and rows i32[1, k] of the head, best first; confidence f32[1, 1]."""

    values: Array
    rows: Array
    confidence: Array | None


class Dspark(BlockDrafter):
    """Row i predicts the position after its own, or its own where the file says so.

    Each row's logits get a bias from the token drafted before it, always the best one.
    """

    name = "draft-dspark"

    def __init__(self, config: BlockConfig, tensors: Tensors, setting: Setting) -> None:
        super().__init__(config, tensors, setting, anchor_predicts=config.from_anchor)
        self._markov = Markov(setting.device, tensors, config, self._words)
        self._sure: Confidence | None = None
        if setting.options.p_min > 0:
            rank = self._markov.rank
            self._sure = Confidence(setting.device, tensors, config, self._norm, rank)
        self._best = setting.device.bind(
            "largest", count=looked_at(setting.options, self._words.head.rows)
        )
        self._steps: Steps[int, tuple[_Row, ...]] = Steps(
            setting.device, self._pass, threads_of(setting.options)
        )

    @property
    def nbytes(self) -> int:
        return super().nbytes + self._markov.nbytes

    def _pass(self, count: int, tokens: Array, positions: Array) -> tuple[_Row, ...]:
        x = self._hidden(count, tokens, positions)
        logits = self._head.logits(x)
        chosen = []
        mark = self._markov.after_token(tokens[:1])
        for row in range(count):
            here = slice(row, row + 1)
            values, rows = self._best(self._markov.biased(mark, logits[here]))
            chosen.append(_Row(values, rows, self._sure and self._sure(x[here], mark)))
            mark = self._markov.after_row(rows[:, :1])
        return tuple(chosen)

    def _guess(self, tokens: Ids, positions: Ids, count: int) -> Draft:
        read = self._device.read
        chosen = self._steps(count, tokens, positions)
        best = self._words.tokens(np.concatenate([read(row.rows) for row in chosen]))
        log_probs = log_softmax(np.concatenate([read(row.values) for row in chosen]))
        sure = [
            1.0 if row.confidence is None else _sigmoid(float(read(row.confidence)[0, 0]))
            for row in chosen
        ]
        return draft_of(best, log_probs, sure, self._options.p_min)


def _sigmoid(x: float) -> float:
    return float(1 / (1 + np.exp(-max(x, -80.0))))


def claims(metadata: Metadata, names: Container[str]) -> bool:
    return metadata.architecture in ARCHITECTURES and MARKOV[0] in names


def check(config: BlockConfig, target: Form, options: SpecOptions) -> None:
    check_block(config, target, options)
    if config.selector is not None:
        raise BadModel(f"'{config.source}' has the metadata of a DFlash2 draft, but a Markov head")
    if options.p_min > 0 and not config.confident:
        raise _unsure(config, options)


def layout(config: BlockConfig, present: Container[str]) -> Layout:
    wanted = block_layout(config, present)
    wanted.add(markov_layout())
    return wanted


def build(config: BlockConfig, tensors: Tensors, setting: Setting) -> Drafter:
    if setting.options.p_min > 0 and CONFIDENCE not in tensors:
        raise _unsure(config, setting.options)
    return Dspark(config, tensors, setting)


def _unsure(config: BlockConfig, options: SpecOptions) -> BadUsage:
    return BadUsage(
        f"'{config.source}' has no confidence head, so its drafts cannot stop where they are less "
        f"sure than {options.p_min:g}",
        hint="use --spec-draft-p-min 0",
    )


PLUGIN = FileKind(claims, read_block, check, layout, build, notes_on_block, PACKED_TWICE)
