"""What the next pass verifies: drafters are asked in turn, each as its controller decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

from turbodflash_engine.decode.accept import Verdict
from turbodflash_engine.decode.controller import MODERATE, Controller, Fixed, Width
from turbodflash_engine.decode.costs import WINDOW, Passes
from turbodflash_engine.decode.guess import NOTHING, Guess
from turbodflash_engine.decode.tree import plant
from turbodflash_engine.drafters._base import NO_DRAFT, Draft, Drafter
from turbodflash_engine.drafters._first import parts_of
from turbodflash_engine.options import SpecOptions

STALE, FIRST_STALE = 64, 4  # passes after which one must be plain again, to know what it costs
ENOUGH = 2  # measurements of one that are believed for long: a single one may have been disturbed
SELDOM = 8  # plain passes in a row of which one is measured, when many were

Clock = Callable[[], float]


class Drafting:
    """Drafters and what was learnt of them; it outlives an answer.

    drafter: sees every token, drafting or not. probes: drafts made only to be watched.
    """

    def __init__(
        self, drafter: Drafter, options: SpecOptions | None = None, clock: Clock = perf_counter
    ) -> None:
        self.drafter, self.clock = drafter, clock
        self.options = options or SpecOptions()
        self.probes = 0
        self._passes = Passes()
        self._made = self._since_plain = 0
        self._controlled = self.options.width is None and not self.options.tree
        self._seats = [self._seat(part) for part in parts_of(drafter) if part.longest]
        self._followed: _Seat | None = None

    def guess(self, history: Sequence[int], deepest: int, rows: int) -> Guess:
        """What may follow `history`: up to `deepest` tokens in a row, and `rows` in all."""
        self._followed = None
        if self._plain_is_due():
            return NOTHING
        for seat in self._seats:
            draft, width = seat.draft(history, deepest, self.clock)
            if width:
                self._followed = seat
                return self._guess_of(draft, width, rows)
            self.probes += bool(draft.tokens)
        return NOTHING

    def learn(self, guess: Guess, verdict: Verdict, seconds: float) -> None:
        """What the pass that verified a guess brought, and how long the model took."""
        if not self._seats:
            return
        rows = 1 + len(guess.tokens)
        self._made += 1
        one_of_many = rows == 1 and not self._since_plain
        if not one_of_many or self._made % SELDOM == 0 or self._passes.times(1) < WINDOW:
            self._passes.add(rows, seconds)
        self._since_plain = 0 if rows == 1 else self._since_plain + 1
        for seat in self._seats:
            if seat is self._followed:
                seat.width.verified(verdict.matched, verdict.tested, rows, len(verdict.tokens))
            else:
                seat.width.waited()
            watched = seat.watched
            if watched is not None and watched.over(verdict.tokens):
                seat.width.watched(watched.matched, watched.tested)
                seat.watched = None

    def begin(self) -> None:
        """Another text: what was guessed of the one before says nothing."""
        for seat in self._seats:
            seat.watched = None
            seat.width.begin()

    def _seat(self, drafter: Drafter) -> _Seat:
        options, longest = self.options, drafter.longest
        fewest = min(options.n_min, longest)
        width: Width = Fixed(longest if options.width is None else options.width)
        if self._controlled:
            width = Controller(self._passes, longest, fewest)
        return _Seat(drafter, width, fewest)

    def _guess_of(self, draft: Draft, width: int, rows: int) -> Guess:
        if self.options.tree:
            return plant(draft, min(self.options.tree, rows), width)
        return Guess(draft.tokens[: min(width, rows)])

    def _plain_is_due(self) -> bool:
        if self._since_plain < FIRST_STALE or not self._controlled:
            return False
        return self._since_plain >= STALE or self._passes.times(1) < ENOUGH


class _Seat:
    """A drafter, who decides about it, and its guess that is watched, if any.

    fewest: a draft of fewer tokens is thrown away.
    """

    def __init__(self, drafter: Drafter, width: Width, fewest: int) -> None:
        self.drafter, self.width, self.fewest = drafter, width, fewest
        self.watched: _Watched | None = None

    def draft(self, history: Sequence[int], most: int, clock: Clock) -> tuple[Draft, int]:
        """What it drafts, and how many tokens of it are to be verified."""
        asked = self.width.ask(min(most, self.drafter.longest))
        if not asked:
            return NO_DRAFT, 0
        began = clock()
        draft = self.drafter.draft(history, asked)
        count = min(len(draft.tokens), asked)
        width = self.width.offered(asked, count, clock() - began)
        if count < self.fewest:
            return NO_DRAFT, 0
        if count and not width and self.watched is None:
            self.watched = _Watched(draft.tokens[: min(count, MODERATE)])
        return draft, width


class _Watched:
    """A guess that nobody verifies, held against what comes."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self._tokens = tokens
        self.matched = self.tested = 0

    def over(self, tokens: Sequence[int]) -> bool:
        """These came next; whether all of the guess that can be judged is judged."""
        for token in tokens:
            if self.tested > self.matched or self.tested == len(self._tokens):
                break
            self.matched += token == self._tokens[self.tested]
            self.tested += 1
        return self.tested > self.matched or self.tested == len(self._tokens)
