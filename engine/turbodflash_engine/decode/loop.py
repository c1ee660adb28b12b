"""The loop: draft, verify, keep, observe. An empty draft is plain decoding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from turbodflash_engine.decode.accept import Chooser, Verdict, accept
from turbodflash_engine.decode.drafting import Clock, Drafting
from turbodflash_engine.decode.guess import NOTHING, Guess
from turbodflash_engine.decode.stop import Ending
from turbodflash_engine.decode.target import Cache, Output, Target, Trial
from turbodflash_engine.sampling.candidates import Candidates


class Onlooker(Chooser, Protocol):
    """A sampler that says what it must see of a pass."""

    def look(self, rows: Output) -> Sequence[Candidates]:
        """What of every row is needed to choose; it waits for the pass."""


class Times(NamedTuple):
    """Seconds of one step: the drafter guessing, the model, the drafter observing, all else."""

    draft: float = 0.0
    verify: float = 0.0
    observe: float = 0.0
    rest: float = 0.0

    def plus(self, other: Times) -> Times:
        """Those of both."""
        draft, verify, observe, rest = other
        return Times(
            self.draft + draft, self.verify + verify, self.observe + observe, self.rest + rest
        )


class Step(NamedTuple):
    """What one pass brought: new tokens, one at least.

    drafted: tokens verified. tested: of them, those compared. passed: False of the first step of
    an answer, whose logits are the prompt's.
    """

    tokens: list[int]
    drafted: int = 0
    tested: int = 0
    times: Times = Times()
    passed: bool = True

    @property
    def accepted(self) -> int:
        """Tokens emitted because they were drafted: all but one."""
        return len(self.tokens) - 1


def decode(
    model: Target,
    drafting: Drafting,
    sampler: Onlooker,
    ending: Ending,
    history: list[int],
    seen: Sequence[Candidates],
    make_room: Callable[[], None] = lambda: None,
) -> Iterator[Step]:
    """Continue `history`, which is in the cache; `seen` is what the sampler saw of its last row.

    make_room: called before a pass that finds the cache full, to forget some of it. That is when
    it holds so many tokens and no others, however many were verified in a pass.

    New tokens are appended to `history`; the cache holds all of it but the last one. Whether a
    step is complete is decided with its trial: the cache, the drafter and the history agree when
    this generator is closed, and the cache and the drafter when it fails.
    """
    if ending.reason:
        return
    drafting.begin()
    yield Step(accept(NOTHING, seen, sampler, ending, history).tokens, passed=False)

    drafter, rates = drafting.drafter, drafting.options.synth_rates
    while not ending.reason:
        watch = _Stopwatch(drafting.clock)
        if model.cache.length == model.cache.capacity:
            make_room()
        guess = drafting.guess(history, *_room(ending, model.cache))
        drafted = watch.lap()
        run, at = [history[-1], *guess.tokens], model.cache.length
        with model.cache.trial() as trial:
            output = model(run, len(run), drafter.taps, guess.parents)
            seen = sampler.look(output)
            verified = watch.lap()
            verdict = accept(guess, seen, sampler, ending, history, rates)
            _keep(trial, guess, verdict)
            rest = watch.lap()
            _observe(drafting, run, at, verdict.rows, output)
            observed = watch.lap()
        drafting.learn(guess, verdict, verified)
        times = Times(drafted, verified, observed, rest + watch.lap())
        yield Step(verdict.tokens, len(guess.tokens), verdict.tested, times)


def _room(ending: Ending, cache: Cache) -> tuple[int, int]:
    """How many drafted tokens may follow each other, and how many there is room for in all."""
    free = min(cache.capacity - cache.length, cache.widest) - 1
    return max(min(ending.left - 1, free), 0), max(free, 0)


def _keep(trial: Trial, guess: Guess, verdict: Verdict) -> None:
    if guess.parents is None:
        trial.keep(len(verdict.rows))
    else:
        trial.keep_path(verdict.rows)


def _observe(
    drafting: Drafting, run: Sequence[int], at: int, rows: Sequence[int], output: Output
) -> None:
    """Show the drafter the rows that have happened, neighbours together."""
    if len(rows) == len(run):
        drafting.drafter.observe(run, range(at, at + len(run)), output.taps)
        return
    for start, stop in _stretches(rows):
        taps = [tap[start:stop] for tap in output.taps]
        drafting.drafter.observe(run[start:stop], range(at, at + stop - start), taps)
        at += stop - start


def _stretches(rows: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Ascending numbers, 0 the first, as [start, stop) of those without a gap."""
    if rows[-1] == len(rows) - 1:
        yield 0, len(rows)
        return
    start = rows[0]
    for row, following in zip(rows, [*rows[1:], -1], strict=True):
        if following != row + 1:
            yield start, row + 1
            start = following


class _Stopwatch:
    def __init__(self, clock: Clock) -> None:
        self._clock, self._last = clock, clock()

    def lap(self) -> float:
        """Seconds since the last lap."""
        now = self._clock()
        seconds, self._last = now - self._last, now
        return seconds
