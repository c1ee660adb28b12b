"""Reading the prompt."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import pairwise

from turbodflash_engine.decode.target import Output, Target
from turbodflash_engine.drafters._base import Drafter
from turbodflash_engine.events import Progress
from turbodflash_engine.sampling.candidates import Candidates

LAST = 32
"""Tokens in the last of several passes, at least: caches that cannot be cut anywhere can be cut in
what they read last."""


def prefill(
    model: Target,
    drafter: Drafter,
    tokens: Sequence[int],
    chunk: int,
    look: Callable[[Output], Sequence[Candidates]],
) -> Generator[Progress, None, Sequence[Candidates]]:
    """Feed the tokens, at least one, in passes of at most `chunk`; return what was seen of the end.

    look: what is to be seen of the last pass, whose one row of logits is the last token's. It looks
    before the drafter does, which may run what overwrites them; what it sees is copied.

    A prompt of several passes reports after each. Closing the generator there leaves the cache
    with the passes that are complete.
    """
    total, seen = len(tokens), []
    for start, end in _parts(total, chunk):
        part = tokens[start:end]
        at = model.cache.length
        with model.cache.trial() as trial:
            output = model(part, logits=1 if end == total else 0, taps=drafter.taps)
            if end == total:
                seen = [each.copied() for each in look(output)]
            trial.keep(len(part))
            drafter.observe(part, range(at, at + len(part)), output.taps, total - end)
        if total > chunk:
            yield Progress("prompt", end, total, "tokens")
    model.cache.checkpoint()
    return seen


def _parts(total: int, chunk: int) -> Iterator[tuple[int, int]]:
    """Beginnings and ends of passes; the last is not a short one if others are much longer."""
    cuts = [*range(0, total, chunk), total]
    if len(cuts) > 2 and chunk >= 2 * LAST:
        cuts[-2] = min(cuts[-2], total - LAST)
    return pairwise(cuts)
