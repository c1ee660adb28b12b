"""Which tokens are read together, which of them are scored, and in which passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from turbodflash_engine.errors import BadUsage

ROW_STEP = 16
"""Rows of a scoring pass come in whole multiples of it."""

Tokens = NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """tokens: [windows, length], each row read from an empty cache.

    Row r of a window predicts its token r + 1. Rows first to length - 2 are scored.
    """

    tokens: Tokens
    first: int

    @property
    def count(self) -> int:
        return int(self.tokens.shape[0])

    @property
    def length(self) -> int:
        return int(self.tokens.shape[1])

    @property
    def scored(self) -> int:
        """Tokens that one window scores."""
        return self.length - 1 - self.first

    def head(self, count: int | None) -> Windows:
        """The first `count` windows; None = all."""
        return replace(self, tokens=self.tokens[:count])


class Pass(NamedTuple):
    """Rows start to stop - 1 of a window, with the logits of the last `logits` of them."""

    start: int
    stop: int
    logits: int


class Shape(NamedTuple):
    """How a text is cut.

    Without a stride, windows of `context` tokens follow one another, and the second half of each is
    scored: its tokens have at least half a context before them. With a stride, windows begin
    `stride` tokens apart and each scores its last `stride` tokens, so that all but the beginning of
    the text is scored. context: 0 = as the model was trained, the window as a whole.
    """

    context: int
    stride: int = 0

    @property
    def length(self) -> int:
        """Tokens of a window, 0 = as trained: a strided one looks back half a stride further."""
        return self.context + self.stride // 2 if self.context else 0

    def trained(self, context: int) -> Shape:
        """This one, for a model that was trained on so many tokens."""
        return self if self.context else self._replace(context=context - self.stride // 2)

    def check(self) -> None:
        """Raises BadUsage where nothing would be scored, or something without a context."""
        if 0 < self.context < 4:
            raise BadUsage(
                f"a context of {self.context} tokens leaves nothing to score", hint="use at least 4"
            )
        if self.stride < 0 or self.stride > self.context > 0:
            raise BadUsage(
                f"the stride is {self.stride}; it lies between 0 (none) and the context, "
                f"{self.context:,}",
                hint="use a smaller stride or a larger context",
            )


def cut(tokens: Sequence[int], shape: Shape, bos: int | None = None) -> Windows:
    """Every whole window of a text.

    bos: takes the place of each window's first token; None = nothing does.
    """
    shape.check()
    length, stride = shape.length, shape.stride
    if len(tokens) < length:
        raise BadUsage(
            f"the text has {len(tokens):,} tokens; one chunk has {length:,}",
            hint="give a longer text, or a smaller context",
        )
    text = np.asarray(tokens, np.int32)
    starts = np.arange(0, len(text) - length + 1, stride or length)
    windows = text[starts[:, None] + np.arange(length)]
    if bos is not None:
        windows[:, 0] = bos
    return Windows(windows, length - 1 - stride if stride else length // 2)


def passes(length: int, first: int, *, ubatch: int, most: int) -> list[Pass]:
    """The passes that give the logits of rows first to length - 2.

    The last token of a window is only predicted, so it is not read. Rows without logits go in
    passes of at most `ubatch`. Those with logits go in passes of at most `most` (not below
    ROW_STEP), all of one size where there are rows enough, because every size is prepared anew: a
    few rows before the first scored one may then get logits too.
    """
    end = length - 1
    most = max(min(most, ubatch) // ROW_STEP * ROW_STEP, ROW_STEP)
    pieces = -(-(end - first) // most)
    size = min(-(-(end - first) // (pieces * ROW_STEP)) * ROW_STEP, end)
    begin = max(end - pieces * size, 0)
    silent = [Pass(at, min(at + ubatch, begin), 0) for at in range(0, begin, ubatch)]
    starts = range(begin, end, size)
    return silent + [Pass(at, min(at + size, end), min(size, end - at)) for at in starts]
