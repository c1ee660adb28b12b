"""Which drafted tokens are right: exactly those that plain decoding would have chosen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from turbodflash_engine.decode.guess import Guess
from turbodflash_engine.decode.stop import Ending
from turbodflash_engine.sampling.candidates import Candidates
from turbodflash_engine.sampling.noise import Stream, uniform


class Chooser(Protocol):
    """What the loop needs of a sampler."""

    @property
    def seed(self) -> int:
        """What its choices are drawn on."""

    def choose(self, seen: Candidates, position: int, history: Sequence[int]) -> int:
        """The token at `position`, given what was seen of its row, and all tokens before it."""


class Verdict(NamedTuple):
    """What one pass brought.

    tokens: emitted, one or more. rows: of the pass, those that have happened: row 0 and the drafts
    that were accepted and followed; as many as tokens. tested: drafts that were compared, one after
    the other. matched: of them, those that were right.
    """

    tokens: list[int]
    rows: list[int]
    tested: int
    matched: int


def accept(
    guess: Guess,
    seen: Sequence[Candidates],
    sampler: Chooser,
    ending: Ending,
    history: list[int],
    rates: Sequence[float] = (),
) -> Verdict:
    """Choose tokens as plain decoding would, row by row, as long as they were guessed.

    seen: of the logits of each row of the pass, 1 + drafted. The first token that was not guessed,
    or that ends the answer, is the last. Tokens are appended to `history`.
    rates: instead of comparing, take the first, the second, ... guess of a chain with this
    probability.
    """
    tokens: list[int] = []
    rows = [0]
    tested = matched = 0
    while True:
        token = sampler.choose(seen[rows[-1]], len(history), history)
        candidates = guess.after(rows[-1])
        if rates and candidates:
            row = candidates[0] if _lucky(rates, tested, sampler.seed, len(history)) else None
            token = guess.token(row) if row else token
        else:
            row = next((row for row in candidates if guess.token(row) == token), None)
        tested += bool(candidates)
        matched += row is not None
        tokens.append(token)
        history.append(token)
        if ending.take(token) or row is None:
            return Verdict(tokens, rows, tested, matched)
        rows.append(row)


def _lucky(rates: Sequence[float], place: int, seed: int, position: int) -> bool:
    """Whether the guess at a place of the draft is taken; the noise belongs to the position."""
    return place < len(rates) and uniform(seed, position, Stream.ACCEPTANCE) < rates[place]
