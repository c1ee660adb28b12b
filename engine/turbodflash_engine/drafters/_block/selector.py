"""DFlash2's selector: which candidate of a row follows which candidate of the row before."""

from __future__ import annotations

from collections.abc import Container

import numpy as np
from numpy.typing import NDArray

from turbodflash_engine.drafters._block.config import BlockConfig
from turbodflash_engine.drafters._block.tables import check_covers
from turbodflash_engine.drafters._guesses import log_softmax
from turbodflash_engine.drafters._words import Words
from turbodflash_engine.errors import BadModel
from turbodflash_engine.layers.steps import Steps, Threads
from turbodflash_engine.layers.tensors import ANY, INCOMPLETE, Layout, Tensors
from turbodflash_kernels.device import Device
from turbodflash_kernels.op import Array, RmsNorm

PREDECESSOR, SUCCESSOR = "selector_predecessor.weight", "selector_successor.weight"
GATE = "selector_hidden.weight"

Floats = NDArray[np.float32]
Ids = NDArray[np.int32]


def selector_layout(config: BlockConfig, present: Container[str]) -> Layout:
    selector = config.selector
    if selector is None and GATE in present:
        raise BadModel(
            f"'{config.source}' has the tensor '{GATE}' of a DFlash2 draft, but its metadata does "
            "not describe one",
            hint=INCOMPLETE,
        )
    if selector is None:
        return Layout()
    table = (selector.rank, ANY)
    return Layout(
        {PREDECESSOR: table, SUCCESSOR: table, GATE: (config.width, selector.rank)},
    )


class Selection:
    """Scores pairs of candidates by a product of their table rows, gated by the row itself."""

    def __init__(
        self,
        device: Device,
        tensors: Tensors,
        config: BlockConfig,
        norm: RmsNorm,
        words: Words,
        threads: Threads,
    ) -> None:
        selector = config.selector
        assert selector is not None
        self._device, self._selector = device, selector
        gate = device.pack([tensors.part(GATE)], config.width)
        self.gate = device.bind("linear", weight=gate, prologue=norm, bias=None)
        tables = []
        for name in (PREDECESSOR, SUCCESSOR):
            table = device.pack([tensors.part(name)], selector.rank)
            check_covers(config, name, table, words.vocabulary)
            tables.append(device.bind("embed", table=table, scale=1.0))
        self._before, self._after = tables
        self._steps: Steps[int, tuple[Array, Array]] = Steps(device, self._look_up, threads)

    def lattice(self, last: int, candidates: Ids, logits: Floats, gate: Floats) -> Floats:
        """f32[n, k, k]: scores of each row's candidates (last axis), after each of the row before.

        last: the token before the first row, its only predecessor. candidates i32[n, k], -1 = none,
        with logits f32[n, k]; gate f32[n, rank].
        """
        n, top = candidates.shape
        known = np.maximum(candidates, 0)
        predecessors = np.concatenate([np.full((1, top), last, np.int32), known[:-1]])
        looked_up = self._steps(n, predecessors.reshape(-1), known.reshape(-1))
        before, after = (self._device.read(rows).reshape(n, top, -1) for rows in looked_up)
        pairs = (before * gate[:, None]) @ after.swapaxes(1, 2)
        scores: Floats = pairs + self._scaled(logits)[:, None]
        return np.where(candidates[:, None] < 0, np.float32(-np.inf), scores)

    def walk(self, candidates: Ids, lattice: Floats) -> tuple[Ids, Floats]:
        """Candidates in the order of their scores after the best one of the row before.

        Returns tokens i32[n, k] and their log-probabilities f32[n, k], best first.
        """
        tokens, log_probs = np.empty_like(candidates), np.empty(candidates.shape, np.float32)
        at = 0
        for row, scores in enumerate(lattice):
            order = np.argsort(-scores[at], kind="stable")
            tokens[row], log_probs[row] = candidates[row, order], log_softmax(scores[at, order])
            at = int(order[0])
        return tokens, log_probs

    def _scaled(self, logits: Floats) -> Floats:
        scaled = logits * np.float32(self._selector.logit_scale)
        cap = np.float32(self._selector.softcap)
        return cap * np.tanh(scaled / cap) if cap > 0 else scaled

    def _look_up(self, key: int, before: Array, after: Array) -> tuple[Array, Array]:
        return self._before(before), self._after(after)
