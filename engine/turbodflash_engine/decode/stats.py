"""Counting and timing one answer."""

from __future__ import annotations

from time import perf_counter

from turbodflash_engine.decode.loop import Step
from turbodflash_engine.events import Finished


class Tally:
    """Begins when it is made."""

    def __init__(self, prompt_tokens: int, cached_tokens: int, seed: int) -> None:
        self._prompt_tokens = prompt_tokens
        self._cached_tokens = cached_tokens
        self._seed = seed
        self._began = perf_counter()
        self._prompt_done: float | None = None
        self._new_tokens = self._drafted = self._accepted = 0
        self._steps = -1  # the first step's logits are the prompt's

    def prompt_done(self) -> None:
        """The prompt is read; what follows is decoding."""
        self._prompt_done = perf_counter()

    def add(self, step: Step) -> None:
        """One more step is complete."""
        self._steps += 1
        self._new_tokens += len(step.tokens)
        self._drafted += step.drafted
        self._accepted += step.accepted

    def finished(self, reason: str) -> Finished:
        """The sum so far."""
        now = perf_counter()
        prompt_done = now if self._prompt_done is None else self._prompt_done
        return Finished(
            reason=reason,
            prompt_tokens=self._prompt_tokens,
            cached_tokens=self._cached_tokens,
            new_tokens=self._new_tokens,
            prefill_seconds=prompt_done - self._began,
            decode_seconds=now - prompt_done,
            seed=self._seed,
            drafted=self._drafted,
            accepted=self._accepted,
            steps=max(self._steps, 0),
        )
