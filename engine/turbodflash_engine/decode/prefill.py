"""Reading the prompt."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from turbodflash_engine.decode.target import Output, Target
from turbodflash_engine.drafters._base import Drafter
from turbodflash_engine.events import Progress


def prefill(
    model: Target, drafter: Drafter, tokens: Sequence[int], chunk: int
) -> Generator[Progress, None, Output]:
    """Feed the tokens, at least one, in passes of at most `chunk`; return the last one's output.

    A prompt of several passes reports after each. Closing the generator there leaves the cache
    with the passes that are complete.
    """
    total = len(tokens)
    for start in range(0, total, chunk):
        part = tokens[start : start + chunk]
        end = start + len(part)
        at = model.cache.length
        with model.cache.trial() as trial:
            output = model(part, logits=1 if end == total else 0, taps=drafter.taps)
            trial.keep(len(part))
            drafter.observe(part, range(at, at + len(part)), output.taps, total - end)
        if total > chunk:
            yield Progress("prompt", end, total, "tokens")
    model.cache.checkpoint()
    return output
