"""How surprising a text is: windows, scores, estimates and divergences, by their laws."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from turbodflash_engine.errors import BadUsage
from turbodflash_engine.perplexity.divergence import diverged
from turbodflash_engine.perplexity.estimates import mean, perplexity
from turbodflash_engine.perplexity.likely import (
    DEEPEST,
    STEPS,
    Difference,
    Likely,
    compare,
    join,
    keep,
)
from turbodflash_engine.perplexity.scoring import score
from turbodflash_engine.perplexity.windows import Shape, cut, passes

seeds = st.integers(0, 2**32 - 1)
lengths = st.integers(4, 700)


def random_logits(seed: int, rows: int, vocabulary: int, spread: float) -> NDArray[np.float32]:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((rows, vocabulary)) * spread + 3).astype(np.float32)


def log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    exact = logits.astype(np.float64)
    exact -= exact.max(axis=1, keepdims=True)
    return exact - np.log(np.exp(exact).sum(axis=1, keepdims=True))


class TestWindows:
    def test_without_a_stride_chunks_follow_one_another(self) -> None:
        found = cut(range(100, 121), Shape(8))
        assert found.tokens.tolist() == [
            list(range(100, 108)),
            list(range(108, 116)),
        ]
        assert (found.first, found.scored) == (4, 3)

    def test_the_beginning_of_the_text_takes_the_place_of_each_first_token(self) -> None:
        assert cut([7] * 16, Shape(8), bos=1).tokens[:, :2].tolist() == [[1, 7], [1, 7]]

    @given(st.integers(8, 64), st.data())
    def test_a_stride_scores_all_but_the_beginning_of_a_text_once(
        self, context: int, data: st.DataObject
    ) -> None:
        stride = data.draw(st.integers(1, context))
        text = list(range(data.draw(st.integers(Shape(context, stride).length, 500))))
        found = cut(text, Shape(context, stride))
        scored = found.tokens[:, found.first + 1 :].ravel().tolist()
        assert scored == list(range(found.length - stride, found.length - stride + len(scored)))
        assert len(text) - stride < scored[-1] + 1 <= len(text)

    @pytest.mark.parametrize(
        ("tokens", "context", "stride", "says"),
        [
            (511, 512, 0, "the text has 511 tokens; one chunk has 512"),
            (599, 512, 256, "the text has 599 tokens; one chunk has 640"),
            (100, 3, 0, "a context of 3 tokens leaves nothing to score"),
            (100, 8, 9, "the stride is 9; it lies between 0"),
        ],
    )
    def test_what_cannot_be_cut(self, tokens: int, context: int, stride: int, says: str) -> None:
        with pytest.raises(BadUsage, match=says):
            cut([0] * tokens, Shape(context, stride))

    @given(lengths, st.data(), st.integers(1, 600), st.integers(1, 600))
    def test_passes_read_each_row_once_and_give_the_logits_of_the_scored(
        self, length: int, data: st.DataObject, ubatch: int, most: int
    ) -> None:
        first = data.draw(st.integers(0, length - 2))
        plan = passes(length, first, ubatch=ubatch, most=most)
        read = [row for each in plan for row in range(each.start, each.stop)]
        assert read == list(range(length - 1))
        seen = {r for each in plan for r in range(each.stop - each.logits, each.stop)}
        assert seen >= set(range(first, length - 1))
        assert all(each.stop - each.start <= max(ubatch, 16) for each in plan)
        assert all(each.logits <= max(most, 16) for each in plan)
        assert len({each.logits for each in plan if each.logits}) <= 2

    def test_passes_are_of_few_sizes(self) -> None:
        assert passes(512, 256, ubatch=512, most=85) == [
            (0, 255, 0),
            *((at, at + 64, 64) for at in range(255, 511, 64)),
        ]


class TestScores:
    @given(seeds, st.integers(1, 5), st.integers(2, 300), st.sampled_from([0.0, 1.0, 30.0]))
    def test_are_those_of_exact_arithmetic(
        self, seed: int, rows: int, vocabulary: int, spread: float
    ) -> None:
        logits = random_logits(seed, rows, vocabulary, spread)
        targets = np.random.default_rng(seed).integers(0, vocabulary, rows).astype(np.int32)
        found = score(logits, targets)
        exact = -log_softmax(logits)[np.arange(rows), targets]
        np.testing.assert_allclose(found.nll, exact, rtol=1e-6, atol=2e-6)
        np.testing.assert_array_equal(found.top, logits.argmax(axis=1))

    def test_an_evenly_undecided_model_has_its_vocabulary_as_perplexity(self) -> None:
        found = perplexity(score(np.zeros((40, 256), np.float32), [3] * 40).nll)
        assert found.value == pytest.approx(256, rel=1e-6)
        assert found.error == pytest.approx(0, abs=1e-6)

    def test_huge_logits_do_not_overflow(self) -> None:
        logits = np.array([[1e38, -1e38, 0]], np.float32)
        assert score(logits, [0]).nll.tolist() == [0.0]


class TestEstimates:
    @given(st.lists(st.floats(-50, 50), min_size=2, max_size=60))
    def test_a_mean_and_its_standard_error(self, values: list[float]) -> None:
        found = mean(np.array(values))
        spread = np.std(values, ddof=1) / math.sqrt(len(values))
        assert found.value == pytest.approx(np.mean(values), abs=1e-9)
        assert found.error == pytest.approx(spread, abs=1e-9)

    def test_one_value_has_no_error(self) -> None:
        assert mean(np.array([2.5])) == (2.5, 0.0)


def measured(
    base: NDArray[np.float32], other: NDArray[np.float32], targets: list[int]
) -> Difference:
    kept = keep(base, score(base, targets))
    return compare(kept, 0, other, score(other, targets))


def rounding(p: NDArray[np.float64], q: NDArray[np.float64]) -> NDArray[np.float64]:
    """What half a step in each kept logarithm can move a divergence by, once they sum to 1 again.

    p, q: logarithms.
    """
    return (np.exp(p) * abs(p - q)).sum(axis=1) / STEPS + 2e-6


class TestDivergence:
    @given(seeds, st.integers(2, 400), st.floats(0.1, 12))
    def test_of_a_model_from_itself_is_nothing(
        self, seed: int, vocabulary: int, spread: float
    ) -> None:
        logits = random_logits(seed, 3, vocabulary, spread)
        found = measured(logits, logits, [0, 1, 1])
        assert (found.divergence >= 0).all()
        assert found.divergence.max() < 2e-6
        assert found.same_top.tolist() == [1, 1, 1]
        np.testing.assert_allclose(found.delta_p, 0, atol=1e-6)

    @given(seeds, st.integers(2, 400), st.floats(0.1, 3), st.floats(0.01, 2))
    def test_is_that_of_exact_arithmetic(
        self, seed: int, vocabulary: int, spread: float, noise: float
    ) -> None:
        base = random_logits(seed, 4, vocabulary, spread)
        other = base + random_logits(seed + 1, 4, vocabulary, noise)
        p, q = log_softmax(base), log_softmax(other)
        exact = (np.exp(p) * (p - q)).sum(axis=1)
        targets = [0, 1, 0, 1]
        found = measured(base, other, targets)
        assert (abs(found.divergence - exact) <= rounding(p, q)).all()
        rows = np.arange(4)
        np.testing.assert_allclose(
            found.delta_p, np.exp(q[rows, targets]) - np.exp(p[rows, targets]), atol=1e-6
        )
        assert found.same_top.tolist() == (p.argmax(1) == q.argmax(1)).tolist()

    @given(seeds)
    def test_unlikely_tokens_count_as_one(self, seed: int) -> None:
        """So what is found is at most the whole divergence, and close to it."""
        base = random_logits(seed, 2, 3000, 6)
        other = base + random_logits(seed + 1, 2, 3000, 0.5)
        p, q = log_softmax(base), log_softmax(other)
        assert (p < -DEEPEST).any()
        exact = (np.exp(p) * (p - q)).sum(axis=1)
        found = measured(base, other, [0, 0]).divergence
        assert (abs(found - exact) <= rounding(p, q) + 1e-3 * exact).all()

    def test_a_token_that_has_become_impossible_costs_without_end(self) -> None:
        base = np.zeros((1, 4), np.float32)
        other = np.array([[0, 0, 0, -np.inf]], np.float32)
        assert measured(base, other, [0]).divergence[0] == math.inf

    @given(seeds, st.integers(1, 4))
    def test_rows_stand_alone(self, seed: int, cut_at: int) -> None:
        """Kept and compared in parts or at once, the numbers are the same."""
        base, other = random_logits(seed, 5, 90, 2), random_logits(seed + 1, 5, 90, 2)
        targets = [0, 1, 2, 3, 4]
        parts = [slice(0, cut_at), slice(cut_at, 5)]
        kept = join([keep(base[part], score(base[part], targets[part])) for part in parts])
        at_once = keep(base, score(base, targets))
        for part, whole in zip(kept, at_once, strict=True):
            np.testing.assert_array_equal(part, whole)
        expected = compare(kept, 0, other, score(other, targets))
        for part in parts:
            scores = score(other[part], targets[part])
            found = compare(kept, part.start, other[part], scores)
            for field, whole in zip(found, expected, strict=True):
                np.testing.assert_array_equal(field, whole[part])


def as_upstream(found: Difference) -> dict[str, Any]:
    """The same statistics by sums of squares and products, as they are usually computed."""
    a, b, n = found.nll, found.nll_base, len(found.nll)

    def error(x: NDArray[np.float64]) -> float:
        return math.sqrt(((x**2).mean() - x.mean() ** 2) / (n - 1))

    covariance = ((a * b).mean() - a.mean() * b.mean()) / (n - 1)
    ppl_a, ppl_b = math.exp(a.mean()), math.exp(b.mean())
    ratio_error = math.sqrt(error(a) ** 2 + error(b) ** 2 - 2 * covariance)
    difference = (ppl_a * error(a)) ** 2 + (ppl_b * error(b)) ** 2 - 2 * ppl_a * ppl_b * covariance
    rms = math.sqrt((found.delta_p**2).mean())
    top = found.same_top.mean()
    return {
        "ppl": (ppl_a, ppl_a * error(a)),
        "ppl_base": (ppl_b, ppl_b * error(b)),
        "correlation": covariance / (error(a) * error(b)),
        "log_ratio": (math.log(ppl_a / ppl_b), ratio_error),
        "ratio": (ppl_a / ppl_b, ppl_a / ppl_b * ratio_error),
        "difference": (ppl_a - ppl_b, math.sqrt(difference)),
        "kld": (found.divergence.mean(), error(found.divergence)),
        "delta_p": (found.delta_p.mean(), error(found.delta_p)),
        "rms_delta_p": (rms, error(found.delta_p**2) / rms / 2),
        "same_top": (top, math.sqrt(top * (1 - top) / (n - 1))),
    }


class TestStatistics:
    @given(seeds, st.integers(10, 200))
    def test_are_those_of_llama_perplexity(self, seed: int, count: int) -> None:
        rng = np.random.default_rng(seed)
        base = rng.gamma(2, 1, count)
        same = (rng.random(count) < 0.8).astype(np.float64)
        nll = base + rng.normal(0, 0.1, count)
        found = Difference(nll, base, rng.gamma(1, 0.1, count), same)
        told = diverged(found)
        for name, value in as_upstream(found).items():
            assert getattr(told, name) == pytest.approx(value, rel=1e-6, abs=1e-9), name

    def test_quantiles_lie_between_the_samples(self) -> None:
        values = np.arange(11.0)
        told = diverged(Difference(values, values, values, values * 0 + 1))
        assert told.kld_quantiles[1.0] == 10
        assert told.kld_quantiles[0.5] == 5
        assert told.kld_quantiles[0.05] == 0.5
        assert told.kld_quantiles[0.0] == 0

    def test_nothing_that_varies_is_still_told(self) -> None:
        told = diverged(Difference(*(np.ones(3),) * 4))
        assert (told.correlation, told.rms_delta_p, told.ratio) == (1.0, (0.0, 0.0), (1.0, 0.0))


def test_what_is_kept_is_small() -> None:
    logits = random_logits(0, 8, 4096, 4)
    kept: Likely = keep(logits, score(logits, [0] * 8))
    assert sum(each.nbytes for each in kept) < logits.nbytes / 2
