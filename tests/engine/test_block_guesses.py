"""From the rows of a block to a draft: where it ends, second thoughts, heads of fewer tokens."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.engine.block_drafts import (
    BONUS,
    PAIRS,
    SLIDING,
    SPARK,
    TEXT,
    V1,
    V2,
    Logits,
    built,
    ids,
    spied,
    values_of,
    variant,
)
from tests.engine.spec_runs import read_prompt
from tests.engine.tiny_models import made
from turbodflash_engine.drafters._base import Draft
from turbodflash_engine.drafters._block.drafter import BlockDrafter
from turbodflash_engine.drafters._guesses import CANDIDATES, draft_of, log_softmax
from turbodflash_engine.drafters.dflash import Dflash2
from turbodflash_engine.drafters.dspark import Dspark
from turbodflash_engine.models._base import Model
from turbodflash_kernels.device import Device

TEXTS = [TEXT[:30], TEXT[:75]]


def draft_after(drafter: BlockDrafter, target: Model, text: list[int], width: int = 99) -> Draft:
    target.cache.truncate(0)
    drafter.truncate(0)
    read_prompt(target, drafter, text)
    return drafter.draft(text, width)


# --- how many -------------------------------------------------------------------------------------


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("tree", [0, 8])
def test_a_narrower_draft_is_the_beginning_of_a_wide_one(
    pair: str, tree: int, target: Model, device: Device
) -> None:
    """The block is the same one: a shorter one would have other logits."""
    drafter = built(pair, target, device, tree=tree)
    whole = draft_after(drafter, target, TEXTS[0])
    assert len(whole.tokens) == drafter.longest
    for width in range(1, drafter.longest):
        part = drafter.draft(TEXTS[0], width)
        assert part.tokens == whole.tokens[:width]
        if tree:
            np.testing.assert_array_equal(part.candidates, whole.candidates[:width])
            np.testing.assert_array_equal(part.log_probs, whole.log_probs[:width])


@pytest.mark.parametrize("pair", PAIRS)
def test_a_draft_stops_before_the_first_row_that_is_not_sure(
    pair: str, target: Model, device: Device
) -> None:
    if pair == BONUS:  # it has no confidence head
        pair = SPARK
    whole = draft_after(built(pair, target, device), target, TEXTS[0]).tokens
    limits = (0.05, 0.3, 0.6, 0.9, 1.0)
    drafts = [
        draft_after(built(pair, target, device, p_min=limit), target, TEXTS[0]).tokens
        for limit in limits
    ]
    assert all(draft == whole[: len(draft)] for draft in drafts)
    assert all(len(more) >= len(less) for more, less in pairwise(drafts))
    assert len(drafts[-1]) < len(whole)


@given(
    st.integers(1, 8).flatmap(
        lambda n: st.tuples(
            arrays(np.int32, (n, 3), elements=st.integers(-1, 5)),
            st.lists(st.floats(0, 1, width=32), min_size=n, max_size=n),
        )
    ),
    st.floats(0, 1, width=32),
)
def test_a_draft_is_the_rows_before_the_first_bad_one(rows: Any, p_min: float) -> None:
    tokens, sure = rows
    draft = draft_of(tokens, np.zeros(tokens.shape, np.float32), sure, p_min)
    count = len(draft.tokens)
    good = [best >= 0 and p >= p_min for best, p in zip(tokens[:, 0], sure, strict=True)]
    assert good[:count] == [True] * count
    assert count == len(good) or not good[count]
    assert draft.tokens == tuple(tokens[:count, 0])
    assert draft.candidates is not None
    assert draft.log_probs is not None
    assert draft.candidates.min(initial=0) == 0
    assert np.isneginf(draft.log_probs).tolist() == (tokens[:count] < 0).tolist()


@given(arrays(np.float32, (2, 4), elements=st.floats(width=32, allow_nan=False)))
def test_probabilities_are_some_whatever_the_scores(scores: Any) -> None:
    with np.errstate(all="raise", under="ignore"):
        shares = np.exp(log_softmax(scores))
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-5)
    assert (np.argsort(-shares, kind="stable")[:, 0] == shares.argmax(axis=1)).all()


# --- second thoughts ------------------------------------------------------------------------------


@pytest.mark.parametrize("pair", PAIRS)
def test_second_thoughts_come_only_for_a_tree(pair: str, target: Model, device: Device) -> None:
    plain = draft_after(built(pair, target, device), target, TEXTS[1])
    draft = draft_after(built(pair, target, device, tree=16), target, TEXTS[1])
    assert plain == Draft(draft.tokens)
    assert draft.candidates is not None
    assert draft.log_probs is not None
    count = 6 if pair == V2 else CANDIDATES
    assert draft.candidates.shape == draft.log_probs.shape == (len(draft.tokens), count)
    assert tuple(draft.candidates[:, 0]) == draft.tokens
    assert (np.diff(draft.log_probs, axis=1) <= 0).all()
    assert all(len(set(row)) == count for row in draft.candidates.tolist())
    assert (np.exp(draft.log_probs).sum(axis=1) <= 1.0001).all()


@pytest.mark.parametrize("pair", [V1, SLIDING, SPARK, BONUS])
def test_second_thoughts_are_the_next_best_of_their_row(
    pair: str, target: Model, device: Device
) -> None:
    drafter = built(pair, target, device, tree=16)
    logits = Logits(drafter, device)
    draft = draft_after(drafter, target, TEXTS[1])
    rows = logits(TEXTS[1])
    np.testing.assert_array_equal(
        draft.candidates, np.argsort(-rows, kind="stable")[:, :CANDIDATES]
    )
    among = np.sort(rows)[:, ::-1][:, :10]
    expected = (among - np.logaddexp.reduce(among, axis=1)[:, None])[:, :CANDIDATES]
    np.testing.assert_allclose(draft.log_probs, expected, rtol=0, atol=1e-4)


# --- heads of other tokens than the model's -------------------------------------------------------


def test_a_draft_ends_before_what_is_no_token_of_the_model(target: Model, device: Device) -> None:
    head = values_of("qwen3", "output.weight")
    padded = np.concatenate([head, 100 * head[:8]])  # one of these rows is the largest by far
    for more in ({}, {"tree": 8}):
        drafter = built(variant(V1, None, [made("output.weight", padded)]), target, device, **more)
        draft = draft_after(drafter, target, TEXTS[0])
        assert len(draft.tokens) < drafter.longest
        assert all(token < 512 for token in draft.tokens)


@pytest.mark.parametrize("pair", [SPARK, BONUS])
@pytest.mark.parametrize("ascending", [True, False])
def test_a_smaller_markov_head_is_the_whole_one_with_rows_left_out(
    pair: str, ascending: bool, target: Model, device: Device
) -> None:
    tokens = np.random.default_rng(3).permutation(512)[:300]
    tokens = np.sort(tokens) if ascending else tokens
    w1, w2 = (values_of(pair, f"markov_w{number}.weight") for number in (1, 2))
    whole = built(pair, target, device)
    calls = spied(whole._head, "logits")
    draft_after(whole, target, TEXTS[1])
    logits = device.read(calls[-1].result).copy()

    chain, previous = [], TEXTS[1][-1]
    for row in logits:
        biased = (row + w2 @ w1[previous])[tokens]
        previous = int(tokens[biased.argmax()])
        chain.append(previous)

    own = [
        made("output.weight", values_of("qwen3", "output.weight")[tokens]),
        made("markov_w2.weight", w2[tokens]),
        ids("d2t", tokens.tolist()),
    ]
    smaller = built(variant(pair, None, own), target, device)
    assert draft_after(smaller, target, TEXTS[1]).tokens == tuple(chain)
    assert isinstance(smaller, Dspark)
    weights = sum(each.data.nbytes for each in own)
    assert smaller.nbytes - whole.nbytes >= weights - own[2].nbytes - w2.nbytes + 300 * 32 * 4


# --- DFlash2 --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("scale", "cap"), [(1.0, 0.0), (0.5, 0.0), (1.0, 4.0), (2.0, 7.0)])
def test_logits_are_scaled_then_capped_before_pairs_are_scored(
    scale: float, cap: float, target: Model, device: Device
) -> None:
    keys = {"dflash.logit_scale": scale, "dflash.final_logit_softcapping": cap}
    plain, other = built(V2, target, device), built(variant(V2, keys), target, device)
    assert isinstance(plain, Dflash2)
    assert isinstance(other, Dflash2)
    calls = spied(plain._selection, "lattice")
    draft_after(plain, target, TEXTS[1])
    (last, candidates, logits, gate), scores = calls[-1]
    expected = logits * scale
    if cap:
        expected = cap * np.tanh(expected / cap)
    found = other._selection.lattice(last, candidates, logits, gate)
    np.testing.assert_allclose(
        found - scores, (expected - logits)[:, None].repeat(6, axis=1), rtol=0, atol=1e-4
    )


def test_the_path_takes_the_best_after_what_it_took_before(target: Model, device: Device) -> None:
    drafter = built(V2, target, device)
    assert isinstance(drafter, Dflash2)
    lattice = np.zeros((3, 2, 2), np.float32)
    lattice[0, :, 1] = 1  # the second of the first row,
    lattice[1, 1, 0], lattice[1, 0, 1] = 1, 5  # after it the first, whatever other paths have,
    lattice[2, 0, 1], lattice[2, 1, 0] = 1, 5  # after that the second
    tokens, log_probs = drafter._selection.walk(np.array([[1, 2], [3, 4], [5, 6]], "i4"), lattice)
    assert tokens.tolist() == [[2, 1], [3, 4], [6, 5]]
    np.testing.assert_allclose(log_probs[:, 0] - log_probs[:, 1], 1, rtol=1e-6)
