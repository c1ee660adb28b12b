from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from turbodflash_engine.sampling import mirostat, steps
from turbodflash_engine.sampling.candidates import Candidates, probabilities, ranked
from turbodflash_engine.sampling.largest import largest


def of(logits: object, ids: object = None) -> Candidates:
    row = np.asarray(logits, np.float32)
    return Candidates(np.arange(len(row)) if ids is None else np.asarray(ids), row)


def survivors(candidates: Candidates) -> list[int]:
    """Tokens that can still be drawn, in the order they are drawn in."""
    return candidates.ids[np.isfinite(candidates.logits)].tolist()


PROBS = [0.1, 0.2, 0.3, 0.4]
CANDIDATES = of(np.log(PROBS))

TABLE = [
    ("top_k", (0,), PROBS, [0, 1, 2, 3]),
    ("top_k", (1,), PROBS, [3]),
    ("top_k", (3,), PROBS, [3, 2, 1]),
    ("top_k", (99,), PROBS, [3, 2, 1, 0]),
    ("top_k", (2,), [0.25, 0.25, 0.25, 0.25], [0, 1]),
    ("top_p", (0.0,), PROBS, [3]),
    ("top_p", (0.39,), PROBS, [3]),
    ("top_p", (0.41,), PROBS, [3, 2]),
    ("top_p", (0.8,), PROBS, [3, 2, 1]),
    ("top_p", (0.999,), PROBS, [3, 2, 1, 0]),
    ("top_p", (1.0,), PROBS, [0, 1, 2, 3]),
    ("min_p", (0.0,), PROBS, [0, 1, 2, 3]),
    ("min_p", (0.26,), PROBS, [1, 2, 3]),
    ("min_p", (0.51,), PROBS, [2, 3]),
    ("min_p", (0.76,), PROBS, [3]),
    ("min_p", (1.0,), PROBS, [3]),
    ("min_p", (7.0,), PROBS, [3]),
    ("typical", (1.0,), PROBS, [0, 1, 2, 3]),
    ("typical", (0.5,), [0.97, 0.01, 0.01, 0.01], [0]),
    ("typical", (0.5,), [0.4, 0.2, 0.2, 0.2], [1, 2, 3]),
    ("top_n_sigma", (0.0,), PROBS, [0, 1, 2, 3]),
    ("top_n_sigma", (1.0,), PROBS, [2, 3]),
    ("top_n_sigma", (3.0,), PROBS, [0, 1, 2, 3]),
    ("xtc", (0.0, 0.1, 0.0), PROBS, [0, 1, 2, 3]),
    ("xtc", (0.5, 0.6, 0.0), PROBS, [0, 1, 2, 3]),
    ("xtc", (0.5, 0.1, 0.6), PROBS, [0, 1, 2, 3]),
    ("xtc", (0.5, 0.15, 0.2), PROBS, [1, 0]),
    ("xtc", (0.5, 0.25, 0.2), PROBS, [2, 1, 0]),
    ("xtc", (1.0, 0.35, 0.99), PROBS, [3, 2, 1, 0]),
    ("xtc", (1.0, 0.45, 0.5), PROBS, [3, 2, 1, 0]),
    ("temperature", (1.0,), PROBS, [0, 1, 2, 3]),
    ("temperature", (0.0,), PROBS, [3]),
    ("temperature", (-1.0,), PROBS, [3]),
    ("temperature", (0.0,), [0.25, 0.25, 0.25, 0.25], [0]),
    ("temperature", (5.0,), PROBS, [0, 1, 2, 3]),
]


@pytest.mark.parametrize(("step", "settings", "probs", "left"), TABLE, ids=str)
def test_which_tokens_survive(
    step: str, settings: tuple[float, ...], probs: list[float], left: list[int]
) -> None:
    assert survivors(getattr(steps, step)(of(np.log(probs)), *settings)) == left


def test_typical_tokens_come_nearest_to_the_entropy_first() -> None:
    probs = np.array(PROBS)
    entropy = -(probs * np.log(probs)).sum()
    by = sorted(range(4), key=lambda token: abs(-math.log(PROBS[token]) - entropy))
    for count in range(1, 4):
        enough = sum(PROBS[token] for token in by[:count]) - 1e-3
        assert survivors(steps.typical(CANDIDATES, enough)) == by[:count]


@pytest.mark.parametrize("temp", [1e-310, 1e-3, 0.5, 0.8, 1.0, 2.0, 1e300])
def test_temperature_divides(temp: float) -> None:
    powers = (np.array(PROBS) / max(PROBS)) ** min(1 / temp, 1e4)
    expected = powers / powers.sum()
    tempered = probabilities(steps.temperature(CANDIDATES, temp))
    np.testing.assert_allclose(tempered, expected, rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize(
    ("probs", "exponent", "effective"),
    [
        ([0.25] * 4, 1.0, 1.5),  # quite unsure: temp + spread
        ([1 - 3e-9, 1e-9, 1e-9, 1e-9], 0.01, None),  # sure: between the two
        ([0.5, 0.5], 3.0, 1.5),
    ],
)
def test_dynamic_temperature_follows_the_entropy(
    probs: list[float], exponent: float, effective: float | None
) -> None:
    temp, spread = 1.0, 0.5
    unsure = -sum(p * math.log(p) for p in probs) / math.log(len(probs))
    expected = effective or 0.5 + unsure**exponent
    dynamic = probabilities(steps.temperature(of(np.log(probs)), temp, spread, exponent))
    fixed = probabilities(steps.temperature(of(np.log(probs)), expected))
    np.testing.assert_allclose(dynamic, fixed, rtol=1e-4, atol=1e-12)


def test_dynamic_temperature_leaves_a_single_candidate_alone() -> None:
    single = of([3.0], [7])
    assert steps.temperature(single, 0.5, 0.5) == single


def test_the_order_of_steps_is_their_meaning() -> None:
    hot_first = steps.min_p(steps.temperature(CANDIDATES, 9.0), 0.8)
    hot_last = steps.temperature(steps.min_p(CANDIDATES, 0.8), 9.0)
    assert (survivors(hot_first), survivors(hot_last)) == ([0, 1, 2, 3], [3])


# what many candidates are cut to without sorting them all is what sorting would have kept

ROWS = hnp.arrays(
    np.float32,
    st.integers(1, 9000),
    elements=st.floats(-20, 20, width=32),
    fill=st.sampled_from([0.0, -1.0, -np.inf]).map(np.float32),
)


@settings(deadline=None)
@given(ROWS, st.integers(1, 200))
def test_the_largest_are_the_head_of_all_ranked(row: np.ndarray, count: int) -> None:
    by = np.lexsort((np.arange(len(row)), -row))[:count]
    assert largest(of(row), count).ids.tolist() == by.tolist()


@pytest.mark.parametrize("size", [63, 64, 1000, 49152, 49153, 151936])
@pytest.mark.parametrize("count", [1, 40, 500])
def test_the_largest_of_a_vocabulary(size: int, count: int) -> None:
    row = np.random.default_rng(size).standard_normal(size).astype(np.float32)
    row[-1] = row.max() + 1  # in the rest that no full column holds
    assert largest(of(row), count).ids.tolist() == np.argsort(-row, kind="stable")[:count].tolist()


@settings(deadline=None)
@given(ROWS, st.floats(0, 1))
def test_top_p_is_the_shortest_sufficient_head(row: np.ndarray, p: float) -> None:
    row[0] = 0.0
    kept = steps.top_p(of(row), p)
    if p == 1:
        assert len(kept.ids) == len(row)
        return
    probs = probabilities(ranked(of(row)))
    assert kept.ids.tolist() == ranked(of(row)).ids[: len(kept.ids)].tolist()
    assert probs[: len(kept.ids)].sum() >= p - 1e-9
    assert probs[: len(kept.ids) - 1].sum() <= p + 1e-9


@settings(deadline=None)
@given(ROWS, st.floats(-5, 20))
def test_mirostat_2_allows_a_surprise_of_mu(row: np.ndarray, mu: float) -> None:
    row[0] = 0.0
    kept = mirostat.version_2(of(row), mu)
    probs = probabilities(ranked(of(row)))
    with np.errstate(divide="ignore"):
        over = np.flatnonzero(-np.log2(probs) > mu)
    expected = max(int(over[0]) if len(over) else len(probs), 1)
    borderline = np.isclose(probs, 2.0**-mu, rtol=1e-9).any()
    assert borderline or len(kept.ids) == expected


def test_mirostat_1_finds_the_k_of_a_zipf_law() -> None:
    size, exponent, mu = 1000, 1.3, 4.0
    logits = -exponent * np.log(np.arange(1, size + 1))
    epsilon = exponent - 1
    k = (epsilon * 2**mu / (1 - size**-epsilon)) ** (1 / exponent)
    assert len(mirostat.version_1(of(logits), mu, size).ids) == int(k)


def test_mirostat_1_takes_any_distribution() -> None:
    for logits in ([1.0], [0.0, 0.0, 0.0], [5.0, -np.inf], -np.log(np.arange(1.0, 50.0))):
        for mu in (-1e4, 0.0, 5.0, 1e4):
            assert 1 <= len(mirostat.version_1(of(logits), mu, 50).ids) <= len(logits)


def test_mirostat_moves_against_the_error() -> None:
    assert mirostat.start(5.0) == 10.0
    assert mirostat.moved(10.0, 7.0, target=5.0, rate=0.1) == pytest.approx(9.8)
    assert mirostat.moved(10.0, 4.0, target=5.0, rate=0.1) == pytest.approx(10.1)
