"""Not every memory can be cut anywhere: what it cannot be cut back to is read again."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.test_draft_model import Talk, ToyModel, drafter_of, greedy
from tests.engine.test_session import Conversation, end_of, text_of
from tests.engine.toy import TOY_INFO, ScriptedDrafter, ToyLayer, ToyTemplate, ToyTokenizer
from turbodflash_engine.cache import Cache
from turbodflash_engine.options import SampleOptions, SayOptions
from turbodflash_engine.session import Session

strides = st.integers(2, 40)
prompts = st.lists(st.text("AB", min_size=1, max_size=20), min_size=1, max_size=5)


def stack(strides: Sequence[int], length: int) -> Cache:
    layers = [ToyLayer(stride) for stride in strides]
    cache = Cache(layers, 200)
    for layer in layers:
        layer.tokens = list(range(length))
    cache.advance(length)
    return cache


@given(
    st.lists(st.integers(1, 7), min_size=1, max_size=4), st.integers(0, 200), st.integers(0, 250)
)
def test_a_stack_goes_back_to_what_all_of_its_layers_do(
    strides: list[int], length: int, wanted: int
) -> None:
    cache = stack(strides, length)
    reached = cache.reach(wanted)
    candidates = [length, *range(min(wanted, length) + 1)]
    everywhere = [n for n in candidates if n == length or not any(n % each for each in strides)]
    assert reached == max(n for n in everywhere if n <= wanted)
    assert cache.reach(reached) == reached
    cache.truncate(reached)
    assert cache.length == reached
    assert all(layer.tokens == list(range(reached)) for layer in cache.layers)  # type: ignore[attr-defined]


def test_a_stack_is_not_cut_to_what_a_layer_does_not_reach() -> None:
    cache = stack([1, 4], 11)
    with pytest.raises(ValueError, match="cannot cut a cache of 11 tokens to 9"):
        cache.truncate(9)
    assert cache.length == 11
    cache.truncate(11)
    cache.truncate(8)
    assert cache.length == 8


@given(prompts, strides, st.booleans())
@settings(deadline=None)
def test_answers_do_not_depend_on_how_far_a_cache_goes_back(
    prompts: list[str], stride: int, drafting: bool
) -> None:
    script = ScriptedDrafter(lambda at, width: [9, 10, 9][:width] if drafting else [])
    free, bound = Conversation(), Conversation(script, stride=stride)
    for prompt in prompts:
        expected, events = free.heard(prompt), bound.heard(prompt)
        assert text_of(events) == text_of(expected)
        cached = end_of(events).cached_tokens
        assert cached <= end_of(expected).cached_tokens
        assert bound.session.held == free.session.held
        assert script.seen == bound.model.layer.tokens == list(bound.session.held)


@given(prompts, st.integers(24, 40), strides)
@settings(deadline=None)
def test_nor_do_those_of_a_context_that_shifts(
    prompts: list[str], capacity: int, stride: int
) -> None:
    def talk(stride: int) -> Session:
        model = ToyModel(capacity=capacity, stride=stride)
        return Session(model, ToyTokenizer(), ToyTemplate(), TOY_INFO, chunk=8, keep=0)

    free, bound = talk(1), talk(stride)
    say = SayOptions(max_tokens=capacity, sample=SampleOptions(temp=0))
    for prompt in prompts:
        assert text_of(bound.complete(prompt, say)) == text_of(free.complete(prompt, say))


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("say"), st.lists(st.integers(8, 11), min_size=1, max_size=40)),
            st.tuples(st.just("step"), st.tuples(st.integers(1, 5), st.integers(0, 5))),
            st.tuples(st.just("cut"), st.floats(0, 1)),
        ),
        max_size=10,
    ),
    strides,
)
@settings(deadline=None)
def test_a_draft_model_says_the_same_whatever_its_cache_goes_back_to(
    script: list[tuple[str, object]], stride: int
) -> None:
    model = ToyModel(capacity=1000, stride=stride)
    talk = Talk(drafter_of(model))
    for do, what in script:
        if do == "step":
            width, right = what  # type: ignore[misc]
            expected = greedy(model, talk.text, width)
            assert talk.step(width, right) == expected
        else:
            getattr(talk, do)(what)


def test_a_draft_model_that_cannot_go_back_reads_no_more_than_its_guesses_again() -> None:
    model = ToyModel(capacity=1000, stride=1000)
    talk = Talk(drafter_of(model))
    talk.say([8 + index % 4 for index in range(200)])
    for right in (0, 3, 5, 1):
        before = sum(map(len, model.passes))
        talk.step(5, right)
        assert sum(map(len, model.passes)) - before <= 5 + 5


def test_what_is_read_again_is_counted_as_such() -> None:
    talk = Conversation(stride=6)
    talk.heard("ABABABABAB", max_tokens=4)
    again = end_of(talk.heard("ABABABABCC", max_tokens=4))
    assert again.cached_tokens == 6


@given(st.text("AB", min_size=1, max_size=20), st.integers(1, 9), st.integers(1, 9))
@settings(deadline=None)
def test_no_pass_is_wider_than_a_cache_has_room_for(prompt: str, widest: int, drafted: int) -> None:
    script = ScriptedDrafter(lambda at, width: [9, 10] * (min(width, drafted) // 2))
    plain, narrow = Conversation(), Conversation(script)
    narrow.model.cache.widest = widest
    assert text_of(narrow.heard(prompt)) == text_of(plain.heard(prompt))
    verified = narrow.model.passes[-end_of(narrow.heard(prompt)).steps :]
    assert max(map(len, verified)) <= widest
