from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.toy import ToyTokenizer
from turbodflash_engine.sampling.candidates import Candidates
from turbodflash_engine.sampling.dry import breakers_of, discourage_repeats
from turbodflash_engine.sampling.penalties import penalise, window

TOKENS = 6
HISTORIES = st.lists(st.integers(0, TOKENS - 1), max_size=40)
LOGITS = st.lists(
    st.floats(-30, 30, width=32), min_size=TOKENS, max_size=TOKENS
)  # one for each token


@st.composite
def candidates(draw: st.DrawFn) -> Candidates:
    """Any of the tokens, in any order."""
    logits = np.asarray(draw(LOGITS), np.float32)
    if draw(st.booleans()):
        return Candidates(np.arange(TOKENS), logits)
    ids = draw(st.lists(st.integers(0, TOKENS - 1), min_size=1, unique=True))
    return Candidates(np.asarray(ids), logits[ids], "other")


@settings(deadline=None)
@given(candidates(), HISTORIES, st.floats(0.5, 2), st.floats(-2, 2), st.floats(-2, 2))
def test_penalties_are_those_of_the_formula(
    given_: Candidates, recent: list[int], repeat: float, frequency: float, presence: float
) -> None:
    after = penalise(given_, recent, repeat=repeat, frequency=frequency, presence=presence)
    counts = Counter(recent)
    for token, before, now in zip(given_.ids, given_.logits, after.logits, strict=True):
        count, expected = counts[int(token)], float(before)
        if count:
            expected = expected * repeat if expected <= 0 else expected / repeat
            expected -= count * frequency + presence
        assert now == pytest.approx(expected, rel=1e-5, abs=1e-5)
    assert after.ids.tolist() == given_.ids.tolist()


@pytest.mark.parametrize(
    ("length", "expected"), [(-1, [1, 2, 3]), (0, []), (2, [2, 3]), (9, [1, 2, 3])]
)
def test_a_window_is_the_end_of_the_history(length: int, expected: list[int]) -> None:
    assert window([1, 2, 3], length) == expected


def test_a_step_never_writes_into_the_logits_it_was_given() -> None:
    logits = np.ones(TOKENS, np.float32)
    whole = Candidates(np.arange(TOKENS), logits)
    penalise(whole, [1, 2], repeat=2, frequency=1, presence=1)
    discourage_repeats(whole, [1, 2, 1, 2], {}, multiplier=1, base=2, allowed_length=1)
    assert (logits == 1).all()


Breakers = Mapping[int, Sequence[tuple[int, ...]]]


def naive_dry(
    recent: list[int], breakers: Breakers, m: float, b: float, a: int
) -> dict[int, float]:
    """Token -> penalty, by comparing every run with the end of the history."""
    if len(recent) <= a:
        return {}
    limit = len(recent)
    for start in reversed(range(len(recent))):
        ends = [
            start + 1 + len(tail)
            for tail in breakers.get(recent[start], ())
            if tuple(recent[start + 1 : start + 1 + len(tail)]) == tail
        ]
        if ends:
            limit = len(recent) - max(ends)
            break
    if limit < a:
        return {}
    longest: dict[int, int] = {}
    for at in range(1, len(recent)):
        length = 0
        while length < min(at, limit) and recent[at - 1 - length] == recent[-1 - length]:
            length += 1
        if length >= a:
            longest[recent[at]] = max(longest.get(recent[at], 0), length)
    return {
        token: m * b ** (length - a)
        for token, length in longest.items()
        if () not in breakers.get(token, ())
    }


FEW = st.integers(0, 2)  # so that runs repeat and breakers occur
BREAKERS = st.dictionaries(
    FEW, st.lists(st.lists(FEW, max_size=2).map(tuple), min_size=1, max_size=2), max_size=2
).map(lambda found: {token: sorted(tails, key=len, reverse=True) for token, tails in found.items()})


@settings(deadline=None, max_examples=600)
@given(
    candidates(),
    st.lists(FEW, max_size=20),
    BREAKERS,
    st.floats(0.1, 2),
    st.floats(1, 2),
    st.integers(0, 4),
)
def test_dry_is_what_comparing_every_run_gives(
    given_: Candidates, recent: list[int], breakers: Breakers, m: float, b: float, a: int
) -> None:
    after = discourage_repeats(given_, recent, breakers, multiplier=m, base=b, allowed_length=a)
    penalties = naive_dry(recent, breakers, m, b, a)
    for token, before, now in zip(given_.ids, given_.logits, after.logits, strict=True):
        expected = float(before) - penalties.get(int(token), 0.0)
        assert now == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_a_long_repeat_costs_much_but_not_infinitely_much() -> None:
    whole = Candidates(np.arange(TOKENS), np.zeros(TOKENS, np.float32))
    after = discourage_repeats(whole, [3] * 2000, {}, multiplier=1, base=1.75, allowed_length=2)
    assert np.isfinite(after.logits).all()
    assert after.logits[3] < -1e37
    assert not after.logits[:3].any()


@pytest.mark.parametrize("off", [{"multiplier": 0.0}, {"base": 0.5}, {"allowed_length": 4}])
def test_dry_is_off(off: dict[str, float]) -> None:
    whole = Candidates(np.arange(TOKENS), np.zeros(TOKENS, np.float32))
    settings = {"multiplier": 1.0, "base": 2.0, "allowed_length": 1} | off
    assert discourage_repeats(whole, [1, 1, 1, 1], {}, **settings) is whole  # type: ignore[arg-type]


def letters(text: str) -> list[int]:
    return ToyTokenizer().encode(text, add_special=False, parse_special=False)


def test_breakers_are_found_in_every_spelling() -> None:
    """The vocabulary writes one character a token, so "AB" begins in "A" and needs a "B"."""
    found = breakers_of(ToyTokenizer(), ("Z", "AB"))
    assert found == {letters("Z")[0]: [()], letters("A")[0]: [tuple(letters("B"))]}


class Words(ToyTokenizer):
    """A vocabulary where pieces are longer than breakers."""

    pieces = (b"x.", b".", b"x\n", b"\n\n", b"x")
    vocab_size = len(pieces)

    def piece(self, token: int, /, special: bool = False) -> bytes:
        return self.pieces[token]

    def encode(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        return [self.pieces.index(bytes([byte])) for byte in text.encode() if byte == ord("x")]


def test_a_token_that_holds_a_breaker_is_one() -> None:
    assert breakers_of(Words(), (".",)) == {0: [()], 1: [()]}
    assert breakers_of(Words(), ("\nx",)) == {2: [(4,)], 3: [(4,)]}
