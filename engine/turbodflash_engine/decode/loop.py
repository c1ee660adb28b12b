"""The loop: draft, verify, keep, observe. An empty draft is plain decoding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from turbodflash_engine.decode.stop import Ending
from turbodflash_engine.decode.target import Logits, Target
from turbodflash_engine.drafters._base import Drafter


class Chooser(Protocol):
    """What the loop needs of a sampler."""

    def sample(self, logits: Logits, position: int, history: Sequence[int]) -> int:
        """The token at `position`, given its logits [vocab] and all tokens before it."""


class Step(NamedTuple):
    """What one pass brought: new tokens, all but the last of them drafted."""

    tokens: list[int]
    drafted: int

    @property
    def accepted(self) -> int:
        """Drafted tokens that were right and are not the last of the step."""
        return len(self.tokens) - 1


def decode(
    model: Target,
    drafter: Drafter,
    sampler: Chooser,
    ending: Ending,
    history: list[int],
    logits: Logits,
) -> Iterator[Step]:
    """Continue `history`, which is in the cache and has `logits` [1, vocab] after its last token.

    New tokens are appended to `history`; the cache holds all of it but the last one. Whether a
    step is complete is decided with its trial: the cache, the drafter and the history agree when
    this generator is closed, and the cache and the drafter when it fails.
    """
    if ending.reason:
        return
    yield Step(accept((), logits, sampler, ending, history), drafted=0)

    while not ending.reason:
        last, at = history[-1], model.cache.length
        budget = ending.left - 1
        guess = list(drafter.draft(history, budget).tokens[:budget]) if budget else []
        run = [last, *guess]
        with model.cache.trial() as trial:
            output = model(run, logits=len(run), taps=drafter.taps)
            tokens = accept(guess, output.logits, sampler, ending, history)
            kept = len(tokens)
            trial.keep(kept)
            rows = [tap[:kept] for tap in output.taps]
            drafter.observe(run[:kept], range(at, at + kept), rows)
        yield Step(tokens, drafted=len(guess))


def accept(
    guess: Sequence[int], logits: Logits, sampler: Chooser, ending: Ending, history: list[int]
) -> list[int]:
    """Choose tokens row by row, exactly as plain decoding would, while the guess is right.

    guess: n drafted tokens; logits: [n + 1, vocab], before each of them and after the last.
    The first token that was not guessed, or that ends the answer, is the last. The tokens, one
    at least, are appended to `history`.
    """
    tokens: list[int] = []
    for row, guessed in zip(logits, [*guess, None], strict=True):
        token = sampler.sample(row, len(history), history)
        tokens.append(token)
        history.append(token)
        if ending.take(token) or token != guessed:
            break
    return tokens
