"""Trees of guesses: which nodes they have, and how one is walked."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.toy import ToyTokenizer
from turbodflash_engine.decode import Ending
from turbodflash_engine.decode.accept import accept
from turbodflash_engine.decode.guess import Guess
from turbodflash_engine.decode.tree import plant
from turbodflash_engine.drafters._base import Draft
from turbodflash_engine.sampling.candidates import Candidates
from turbodflash_engine.tokenizer.stream import Detokenizer

VOCABULARY = 12


@st.composite
def drafts(draw: st.DrawFn) -> Draft:
    """Up to 6 positions of up to 5 candidates; the tokens need not be the best of them."""
    depth, count = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    rows = [draw(st.permutations(range(VOCABULARY)))[:count] for _ in range(depth)]
    weight = st.lists(st.integers(1, 99), min_size=count, max_size=count)
    weights = [sorted(draw(weight), reverse=True) for _ in range(depth)]
    log_probs = np.log(np.array(weights, np.float32) / 500)
    chosen = draw(st.lists(st.integers(0, VOCABULARY - 1), min_size=depth, max_size=depth))
    best = draw(st.booleans())
    tokens = tuple(row[0] for row in rows) if best else tuple(chosen)
    return Draft(tokens, np.array(rows, np.int32), log_probs)


def paths(guess: Guess) -> list[tuple[int, ...]]:
    """For each drafted row, the drafted tokens from the first down to it."""
    parents = guess.parents or range(-1, len(guess.tokens))
    found: list[tuple[int, ...]] = [()]
    for row, token in enumerate(guess.tokens, 1):
        found.append((*found[parents[row]], token))
    return found[1:]


@settings(deadline=None)
@given(drafts(), st.integers(1, 30), st.integers(1, 8))
def test_a_tree_is_a_tree_around_the_best_chain(draft: Draft, nodes: int, deepest: int) -> None:
    guess = plant(draft, nodes, deepest)
    assert guess.parents is not None
    assert guess.parents[0] == -1
    assert all(0 <= parent < row for row, parent in enumerate(guess.parents) if row)
    assert len(guess.tokens) <= nodes
    assert guess.depth <= deepest
    found = paths(guess)
    assert len(set(found)) == len(found)
    chain = draft.tokens[: min(nodes, deepest)]
    assert found[: len(chain)] == [chain[:end] for end in range(1, len(chain) + 1)]


def score(draft: Draft, path: tuple[int, ...]) -> float:
    assert draft.candidates is not None
    assert draft.log_probs is not None
    ranks = [draft.candidates[depth].tolist().index(token) for depth, token in enumerate(path)]
    return float(sum(draft.log_probs[depth][rank] for depth, rank in enumerate(ranks)))


@settings(deadline=None, max_examples=50)
@given(drafts().filter(lambda draft: draft.candidates is not None), st.integers(1, 20))
def test_the_nodes_are_the_most_likely_ones(draft: Draft, nodes: int) -> None:
    assert draft.candidates is not None
    rows = draft.candidates.tolist()
    draft = draft._replace(tokens=())
    found = paths(plant(draft, nodes, len(rows)))
    every = [path for depth in range(len(rows)) for path in product(*rows[: depth + 1])]
    assert len(found) == min(nodes, len(every))
    best = sorted((score(draft, path) for path in every), reverse=True)[: len(found)]
    chosen = sorted((score(draft, path) for path in found), reverse=True)
    np.testing.assert_allclose(chosen, best, rtol=1e-5)


def test_without_second_thoughts_a_tree_is_a_chain() -> None:
    assert plant(Draft((3, 4, 5)), 16, 2) == Guess((3, 4))


def test_a_candidate_that_is_none_is_left_out() -> None:
    draft = Draft((3,), np.array([[3, -1]], np.int32), np.array([[-0.1, -np.inf]], np.float32))
    assert plant(draft, 8, 8) == Guess((3,), (-1, 0))


class Says:
    """A sampler that says what it was given, whatever the logits; each row is known by its mark."""

    seed = 0

    def __init__(self, text: list[int]) -> None:
        self.text, self.rows = list(text), list[int]()

    def choose(self, seen: Candidates, position: int, history: list[int]) -> int:
        self.rows.append(int(seen.logits[0]))
        return self.text[position]


def marked(rows: int) -> list[Candidates]:
    """What a sampler sees of rows whose only logit is their number."""
    return [Candidates(np.zeros(1, np.int64), np.array([row], np.float32)) for row in range(rows)]


def ending(left: int = 99) -> Ending:
    return Ending(Detokenizer(ToyTokenizer()), eog=(), left=left, limit="length")


@settings(deadline=None)
@given(
    drafts(),
    st.integers(1, 20),
    st.lists(st.integers(8, 8 + VOCABULARY), min_size=9, max_size=9),
)
def test_a_walk_follows_what_is_said_and_gets_as_far_as_the_chain(
    draft: Draft, nodes: int, text: list[int]
) -> None:
    draft = Draft(tuple(t + 8 for t in draft.tokens), draft.candidates + 8, draft.log_probs)  # type: ignore[operator]
    accepted = []
    for guess in (Guess(draft.tokens[:nodes]), plant(draft, nodes, len(draft.tokens))):
        marks = marked(1 + len(guess.tokens))
        sampler, history = Says([0, *text]), [0]
        verdict = accept(guess, marks, sampler, ending(), history)
        assert history == [0, *verdict.tokens] == [0, *text][: len(history)]
        assert sampler.rows == verdict.rows
        assert len(verdict.rows) == len(verdict.tokens)
        told = tuple(verdict.tokens[:-1])
        assert verdict.rows[1:] == [
            paths(guess).index(told[: end + 1]) + 1 for end in range(len(told))
        ]
        assert (*told, verdict.tokens[-1]) not in paths(guess)
        accepted.append(len(told))
    assert accepted[1] >= accepted[0]


@pytest.mark.parametrize("left", range(1, 5))
def test_an_ending_inside_a_tree_is_the_end(left: int) -> None:
    guess = Guess((8, 9, 10, 11), (-1, 0, 1, 2, 3))
    sampler, history = Says([0, 8, 9, 10, 11, 12]), [0]
    verdict = accept(guess, marked(5), sampler, ending(left), history)
    assert verdict.tokens == [8, 9, 10, 11][:left]
    assert (verdict.tested, verdict.matched) == (left, left)
