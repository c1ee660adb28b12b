from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.engine.toy import VOCAB, ToyTokenizer
from turbodflash_engine.errors import BadUsage, TurbodflashError, Unknown
from turbodflash_engine.options import SAMPLERS, SampleOptions, sampler_name
from turbodflash_engine.sampling import Sampler, resolve_seed, sample_defaults
from turbodflash_engine.sampling.candidates import Candidates, Largest
from turbodflash_engine.sampling.chain import Place
from turbodflash_engine.sampling.noise import Stream, uniform

SEED = 42
PLAIN = SampleOptions(samplers=())


class Wide(ToyTokenizer):
    """More tokens than are ever asked for."""

    vocab_size = 190
    suppress = frozenset()


class Bare(ToyTokenizer):
    """No token is forbidden."""

    suppress = frozenset()


def row(seed: int = 0, size: int = VOCAB) -> NDArray[np.float32]:
    return (np.random.default_rng(seed).standard_normal(size) * 3).astype(np.float32)


def sampler(options: SampleOptions = PLAIN, seed: int = SEED) -> Sampler:
    return Sampler(options, Bare(), seed)


def frequencies(
    options: SampleOptions, logits: NDArray[np.float32], draws: int
) -> NDArray[np.float64]:
    """Share of each token when each position draws once."""
    drawn = [sampler(options).sample(logits, position, ()) for position in range(draws)]
    return np.bincount(drawn, minlength=VOCAB) / draws


@pytest.mark.parametrize("seed", range(3))
def test_tokens_are_drawn_with_their_probability(seed: int) -> None:
    """Chi-square over 4,000 draws: 63 degrees of freedom, so 120 is one in 50,000."""
    logits, draws = row(seed) / 3, 4000
    expected = np.exp(logits.astype(np.float64))
    expected /= expected.sum()
    seen = frequencies(PLAIN, logits, draws)
    assert draws * ((seen - expected) ** 2 / expected).sum() < 120


def test_the_default_chain_draws_from_what_it_leaves() -> None:
    options, logits, draws = SampleOptions(), row(1), 4000
    left = sampler(options).candidates(Candidates(np.arange(VOCAB), logits), Place((), 0, SEED))
    expected = np.zeros(VOCAB)
    expected[left.ids] = np.exp(left.logits - left.logits.max())
    expected /= expected.sum()
    seen = frequencies(options, logits, draws)
    assert set(np.flatnonzero(seen)) <= set(left.ids.tolist())
    assert np.abs(seen - expected).max() < 0.03


def test_noise_is_uniform_and_its_streams_are_strangers() -> None:
    draws = np.array([[uniform(SEED, place, stream) for place in range(4000)] for stream in Stream])
    assert draws.min() >= 0
    assert draws.max() < 1
    for stream in draws:
        counts = np.bincount((stream * 64).astype(int), minlength=64)
        assert ((counts - 62.5) ** 2 / 62.5).sum() < 120
        assert abs(np.corrcoef(stream[:-1], stream[1:])[0, 1]) < 0.05
    assert abs(np.corrcoef(draws)[0, 1]) < 0.05


def test_neighbouring_seeds_are_strangers() -> None:
    draws = np.array(
        [[uniform(seed, place, Stream.TOKEN) for place in range(2000)] for seed in (7, 8)]
    )
    assert abs(np.corrcoef(draws)[0, 1]) < 0.06
    assert not (draws[0] == draws[1]).any()


EVERYTHING = SampleOptions(
    repeat_penalty=1.2,
    frequency_penalty=0.1,
    dry_multiplier=0.8,
    typical_p=0.9,
    top_n_sigma=2.0,
    xtc_probability=0.5,
    dynatemp_range=0.3,
)


@pytest.mark.parametrize(
    "options", [PLAIN, SampleOptions(), EVERYTHING], ids=["bare", "default", "all"]
)
def test_a_draw_depends_on_its_arguments_alone(options: SampleOptions) -> None:
    """What one sampler chose before, and in which order, does not matter to the next choice."""
    history = [9, 10, 11, 9, 10, 11, 9, 10]
    places = list(range(30))
    forwards, backwards = sampler(options), sampler(options)
    first = {at: forwards.sample(row(at), at, history) for at in places}
    again = {at: backwards.sample(row(at), at, history) for at in reversed(places)}
    assert first == again


def test_the_same_seed_says_the_same_and_another_seed_another() -> None:
    def text(seed: int) -> list[int]:
        return [sampler(SampleOptions(), seed).sample(row(at), at, ()) for at in range(40)]

    assert text(1) == text(1)
    assert text(1) != text(2)


GREEDY = [
    SampleOptions(temp=0),
    SampleOptions(temp=-1),
    SampleOptions(top_k=1),
    SampleOptions(temp=0, top_k=1, seed=42),
    SampleOptions(temp=0, top_k=0, top_p=1, min_p=0, top_n_sigma=1),
    SampleOptions(temp=0, mirostat=2),
    SampleOptions(temp=0, mirostat=1, repeat_penalty=5, repeat_last_n=64),
]


@pytest.mark.parametrize("options", GREEDY, ids=lambda o: f"temp={o.temp},k={o.top_k},{o.mirostat}")
@settings(deadline=None)
@given(seed=st.integers(0, 2**32 - 2), at=st.integers(0, 10**6), data=st.integers(0, 10**6))
def test_greedy_is_the_largest_logit(options: SampleOptions, seed: int, at: int, data: int) -> None:
    logits = row(data)
    assert sampler(options, seed).sample(logits, at, [1, 2, 3]) == int(logits.argmax())


@pytest.mark.parametrize(
    "options", [SampleOptions(temp=0), SampleOptions(temp=0, dry_multiplier=1)]
)
def test_of_equals_the_first_is_greedy(options: SampleOptions) -> None:
    logits = np.zeros(VOCAB, np.float32)
    logits[[40, 20, 30]] = 1.0
    assert sampler(options).sample(logits, 0, ()) == 20


@pytest.mark.parametrize(
    ("change", "chosen"),
    [
        ({"repeat_penalty": 9.0}, 11),
        ({"presence_penalty": 9.0}, 11),
        ({"frequency_penalty": 5.0}, 11),
        ({"repeat_penalty": 9.0, "repeat_last_n": 0}, 10),
        ({"repeat_penalty": 9.0, "repeat_last_n": 1}, 10),
        ({"xtc_probability": 1.0}, 11),
        ({"logit_bias": ((10, -9.0),)}, 11),
        ({"logit_bias": ((12, 9.0),)}, 12),
        ({"logit_bias": ((12, 5.0), (12, 4.0))}, 12),
        ({}, 10),
    ],
    ids=str,
)
def test_what_moves_the_largest_logit_moves_the_greedy_choice(
    change: dict[str, Any], chosen: int
) -> None:
    logits = np.full(VOCAB, -20.0, np.float32)
    logits[[10, 11, 12]] = [2.0, 1.5, 0.0]
    options = replace(SampleOptions(temp=0), **change)
    assert sampler(options).sample(logits, 3, [10, 10, 40]) == chosen


def test_repetition_is_discouraged_by_dry() -> None:
    logits = np.zeros(VOCAB, np.float32)
    logits[[12, 13]] = [5.0, 4.0]
    history = [10, 11, 12, 10, 11]
    assert sampler(SampleOptions(temp=0)).sample(logits, 5, history) == 12
    dry = SampleOptions(temp=0, dry_multiplier=2.0)
    assert sampler(dry).sample(logits, 5, history) == 13


@pytest.mark.parametrize("temp", [0.0, 1.0])
def test_forbidden_tokens_never_come(temp: float) -> None:
    logits = np.zeros(VOCAB, np.float32)
    logits[[1, 2, 5]] = 9.0  # the ends of generation and the suppressed token
    chosen = Sampler(SampleOptions(temp=temp, ignore_eos=True), ToyTokenizer(), SEED)
    assert not {chosen.sample(logits, at, ()) for at in range(200)} & {1, 2, 5}
    ends = Sampler(SampleOptions(temp=temp), ToyTokenizer(), SEED)
    assert ends.sample(logits, 0, ()) in {1, 2}


def test_an_impossible_token_is_not_drawn_even_at_the_very_bottom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("turbodflash_engine.sampling.sampler.uniform", lambda *_: 0.0)
    options = replace(PLAIN, logit_bias=((0, -np.inf), (1, -np.inf)))
    assert sampler(options).sample(row(), 0, ()) == 2


def test_logits_past_the_vocabulary_are_not_looked_at() -> None:
    padded = np.concatenate([row(), np.full(10, 99, np.float32)])
    for temp in (0.0, 0.8):
        options = SampleOptions(temp=temp)
        assert sampler(options).sample(padded, 0, ()) == sampler(options).sample(row(), 0, ())


def test_mirostat_holds_the_surprise_near_its_target() -> None:
    for version in (1, 2):
        options = SampleOptions(mirostat=version, mirostat_ent=3.0, temp=1.0)
        chosen = sampler(options)
        surprises = []
        for at in range(600):
            logits = row(at) / 2
            probs = np.exp(logits - logits.max())
            probs /= probs.sum()
            surprises.append(-np.log2(probs[chosen.sample(logits, at, ())]))
        assert np.mean(surprises[100:]) == pytest.approx(3.0, abs=0.8)
        assert chosen.mu != 6.0


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("temp", [0.0, 0.8])
def test_logits_that_are_no_numbers_are_refused(poison: float, temp: float) -> None:
    logits = np.full(VOCAB, poison, np.float32)
    with pytest.raises(TurbodflashError, match="position 17"):
        sampler(SampleOptions(temp=temp)).sample(logits, 17, ())


def test_a_bias_for_a_token_that_is_not_there_is_refused() -> None:
    with pytest.raises(BadUsage, match="token 64; this model's tokens are 0 to 63"):
        sampler(SampleOptions(logit_bias=((64, 1.0),)))


def test_seeds_are_resolved_once() -> None:
    assert resolve_seed(42) == 42
    assert resolve_seed(42, attempt=3) == 45
    assert resolve_seed(2**32 - 2, attempt=1) == 0
    assert len({resolve_seed(-1) for _ in range(8)} | {resolve_seed(2**32 - 1)}) == 9


# options


@pytest.mark.parametrize(
    ("spelled", "name"),
    [("top-k", "top_k"), ("topk", "top_k"), ("nucleus", "top_p"), ("temp", "temperature"),
     ("typ", "typ_p"), ("typical", "typ_p"), ("Min-P", "min_p"), ("top-n-sigma", "top_n_sigma")],
)  # fmt: skip
def test_samplers_have_other_spellings(spelled: str, name: str) -> None:
    assert sampler_name(spelled) == name
    assert SampleOptions(samplers=(spelled,)).samplers == (name,)


def test_an_unknown_sampler_is_refused_with_its_neighbour() -> None:
    with pytest.raises(Unknown, match="no sampler named 'tempratur'") as caught:
        SampleOptions(samplers=("top_k", "tempratur"))
    assert caught.value.hint == "did you mean 'temperature'?"
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"temp": float("nan")},
        {"top_p": float("inf")},
        {"repeat_penalty": 0.0},
        {"repeat_last_n": -2},
        {"seed": -2},
        {"seed": 2**32},
        {"mirostat": 3},
        {"dynatemp_exp": -1.0},
        {"logit_bias": ((-1, 0.0),)},
        {"logit_bias": ((1, float("inf")),)},
    ],
    ids=str,
)
def test_impossible_settings_are_refused(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(BadUsage, match=name.split("_")[0]):
        SampleOptions(**wrong)


@settings(deadline=None)
@given(st.permutations(SAMPLERS), st.integers(0, 9))
def test_any_order_of_steps_gives_a_token(order: Sequence[str], count: int) -> None:
    options = replace(EVERYTHING, samplers=tuple(order[:count]))
    assert 0 <= sampler(options).sample(row(count), 9, [1, 2, 1, 2]) < VOCAB


def test_a_file_brings_defaults_along() -> None:
    meta = {
        "general.sampling.temp": 1,
        "general.sampling.top_k": 20,
        "general.sampling.penalty_last_n": 32,
        "general.sampling.sequence": "kpt",
        "general.sampling.min_p": "much",
        "general.sampling.mirostat": 7,
    }
    options, keys = sample_defaults(meta)
    expected = SampleOptions(
        temp=1.0, top_k=20, repeat_last_n=32, samplers=("top_k", "top_p", "temperature")
    )
    assert options == expected
    assert set(keys) == {
        f"general.sampling.{key}" for key in ("temp", "top_k", "penalty_last_n", "sequence")
    }
    assert sample_defaults({}) == (SampleOptions(), ())


class Far:
    """Rows whose logits lie on a device: what was asked for is written down."""

    def __init__(self, rows: NDArray[np.float32]) -> None:
        self.rows, self.asked = rows, list[int]()

    @property
    def logits(self) -> NDArray[np.float32]:
        self.asked.append(0)
        return self.rows

    def largest(self, count: int, width: int) -> Largest:
        self.asked.append(count)
        ids = np.argsort(-self.rows[:, :width], axis=1, kind="stable")[:, :count]
        return Largest(np.take_along_axis(self.rows, ids, axis=1), ids.astype(np.int32))


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        (SampleOptions(temp=0), 1),
        (SampleOptions(top_k=1), 1),
        (SampleOptions(), 40),
        (SampleOptions(top_k=7, xtc_probability=0.5), 7),
        (SampleOptions(samplers=("top_k", "penalties"), repeat_penalty=1.5), 40),
        (SampleOptions(temp=0, mirostat=2), 1),
        (SampleOptions(temp=0, logit_bias=((3, -2.0), (9, -np.inf))), 3),
        (SampleOptions(top_k=20, logit_bias=((3, -2.0), (9, -np.inf))), 22),
        (SampleOptions(top_k=20, ignore_eos=True), 20 + len(ToyTokenizer.eog)),
        (SampleOptions(temp=0, logit_bias=((3, 2.0),)), 0),
        (SampleOptions(top_k=65), 0),
        (SampleOptions(top_k=0), 0),
        (SampleOptions(repeat_penalty=1.5), 0),
        (SampleOptions(dry_multiplier=0.8), 0),
        (SampleOptions(mirostat=2), 0),
        (SampleOptions(samplers=("min_p", "top_k")), 0),
    ],
)
def test_no_more_is_fetched_than_has_a_say_and_the_token_is_the_same(
    options: SampleOptions, asked: int
) -> None:
    rows = np.array([np.rint(row(seed, 200) * 2) for seed in range(40)])  # most are ties
    chooser = Sampler(options, Wide(), SEED)
    far = Far(rows)
    seen = chooser.look(far)
    assert far.asked == [asked]
    history = [1, 2, 3, 1, 2]
    chosen = [chooser.choose(each, at, history) for at, each in enumerate(seen)]
    whole = Sampler(options, Wide(), SEED)
    assert chosen == [whole.sample(each, at, history) for at, each in enumerate(rows)]
