"""DSpark's Markov head: what a token says about the next one, and how sure the draft is."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from turbodflash_engine.drafters._block.config import BlockConfig
from turbodflash_engine.drafters._block.tables import check_covers
from turbodflash_engine.drafters._words import Words
from turbodflash_engine.errors import BadModel
from turbodflash_engine.layers.tensors import ANY, INCOMPLETE, Layout, Tensors
from turbodflash_kernels.device import Device
from turbodflash_kernels.op import Array, Part, RmsNorm
from turbodflash_kernels.planar import Planar

MARKOV = ("markov_w1.weight", "markov_w2.weight")
CONFIDENCE, CONFIDENCE_BIAS = "conf_proj.weight", "conf_proj.bias"


def markov_layout() -> Layout:
    return Layout(dict.fromkeys(MARKOV, (ANY, ANY)), {CONFIDENCE: (ANY, 1), CONFIDENCE_BIAS: (1,)})


class Markov:
    """A bias on the logits of a row from the token before it, by two tables of rank R.

    after_token: tokens i32[n] -> f32[n, R], what they say of the next one. after_row: the same for
    rows of the head. biased: (that, logits f32[n, rows]) -> f32[n, rows].
    nbytes: of what it packs beside the tensors of the file.
    """

    def __init__(self, device: Device, tensors: Tensors, config: BlockConfig, words: Words) -> None:
        self.rank = rank = _rank(tensors, config, words)
        table = device.pack([tensors.part(MARKOV[0])], rank)
        known = words.vocabulary
        if words.row_tokens is None:  # rows that are no tokens of the model are looked up, too
            known = max(known, words.head.rows)
        check_covers(config, MARKOV[0], table, known)
        self.nbytes = 0
        self.after_token = self.after_row = device.bind("embed", table=table, scale=1.0)
        if words.row_tokens is not None:
            chosen = device.pack([_rows_of(tensors.part(MARKOV[0]), words.row_tokens)], rank)
            self.nbytes = chosen.nbytes
            self.after_row = device.bind("embed", table=chosen, scale=1.0)
        bias = device.pack([tensors.part(MARKOV[1])], rank)
        self.biased = device.bind("linear", weight=bias, prologue=None, bias=None)


class Confidence:
    """How sure a row is, from the row itself and what the token before says of it."""

    def __init__(
        self, device: Device, tensors: Tensors, config: BlockConfig, norm: RmsNorm, rank: int
    ) -> None:
        self._join = device.bind("join", norms=(norm, None))
        weight = device.pack([tensors.part(CONFIDENCE)], config.width + rank)
        bias = (
            device.upload(tensors.vector(CONFIDENCE_BIAS)) if CONFIDENCE_BIAS in tensors else None
        )
        self._project = device.bind("linear", weight=weight, prologue=None, bias=bias)

    def __call__(self, x: Array, mark: Array) -> Array:
        """x f32[n, width], not normed yet; mark f32[n, R] -> f32[n, 1], before the sigmoid."""
        return self._project(self._join(x, mark))


def _rank(tensors: Tensors, config: BlockConfig, words: Words) -> int:
    """R, which the metadata does not name, once all shapes agree on it."""
    rank = tensors.shape(MARKOV[0])[0]
    expected = {MARKOV[1]: (rank, words.head.rows)}
    if CONFIDENCE in tensors:
        expected[CONFIDENCE] = (config.width + rank, 1)
    for name, shape in expected.items():
        if tensors.shape(name) != shape:
            raise BadModel(
                f"'{config.source}': tensor '{name}' has the shape {list(tensors.shape(name))}, "
                f"expected {list(shape)}",
                hint=INCOMPLETE,
            )
    return rank


def _rows_of(part: Part, rows: NDArray[np.int64]) -> Part:
    """Some rows of a part, in this order."""

    def decode(start: int, stop: int) -> Planar:
        wanted = rows[start:stop]
        first = int(wanted.min())
        near = part.decode(first, int(wanted.max()) + 1)
        factors = (near.scale, near.min, near.super_scale, near.super_min)
        chosen = [None if factor is None else factor[wanted - first] for factor in factors]
        return Planar(near.format, near.codes[wanted - first], *chosen)

    return Part(part.format, len(rows), decode, part.factor)
