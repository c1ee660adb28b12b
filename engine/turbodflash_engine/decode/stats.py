"""Counting and timing one answer."""

from __future__ import annotations

from turbodflash_engine.decode.drafting import Drafting
from turbodflash_engine.decode.loop import Step, Times
from turbodflash_engine.events import Finished, Speculation


class Tally:
    """Begins when it is made."""

    def __init__(
        self, prompt_tokens: int, cached_tokens: int, seed: int, drafting: Drafting
    ) -> None:
        self._prompt_tokens = prompt_tokens
        self._cached_tokens = cached_tokens
        self._seed = seed
        self._drafting, self._probes_before = drafting, drafting.probes
        self._began = drafting.clock()
        self._prompt_done: float | None = None
        self._new_tokens = self._emitted = 0
        self._drafted = self._tested = self._accepted = 0
        self._widths: list[int] = []
        self._histogram: list[int] = []
        self._times = Times()

    def prompt_done(self) -> None:
        """The prompt is read; what follows is decoding."""
        self._prompt_done = self._drafting.clock()

    def add(self, step: Step) -> None:
        """One more step is complete."""
        self._new_tokens += len(step.tokens)
        if not step.passed:
            return
        self._emitted += len(step.tokens)
        self._drafted += step.drafted
        self._tested += step.tested
        self._accepted += step.accepted
        _count(self._widths, step.drafted)
        if step.drafted:
            _count(self._histogram, step.accepted)
        self._times = self._times.plus(step.times)

    def finished(self, reason: str, dropped: int = 0) -> Finished:
        """The sum so far. dropped: tokens that had to leave the context."""
        now = self._drafting.clock()
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
            steps=sum(self._widths),
            dropped=dropped,
            speculation=self._speculation() if self._drafting.drafter.longest else None,
        )

    def _speculation(self) -> Speculation:
        drafter, options = self._drafting.drafter, self._drafting.options
        return Speculation(
            drafter=drafter.name,
            steps=sum(self._widths),
            drafts=sum(self._histogram),
            probes=self._drafting.probes - self._probes_before,
            drafted=self._drafted,
            tested=self._tested,
            accepted=self._accepted,
            emitted=self._emitted,
            widths=tuple(self._widths),
            histogram=tuple(self._histogram),
            seconds_draft=self._times.draft,
            seconds_verify=self._times.verify,
            seconds_observe=self._times.observe,
            seconds_rest=self._times.rest,
            nbytes=drafter.nbytes,
            synthetic=bool(options.synth_rates),
        )


def _count(counts: list[int], value: int) -> None:
    """One more of a value, in a list of how often each was met."""
    counts += [0] * (value + 1 - len(counts))
    counts[value] += 1
