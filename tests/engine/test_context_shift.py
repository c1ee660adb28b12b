"""A text goes on where the context is full: what leaves, what stays, and drafts change none."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.spec_runs import draft_for
from tests.engine.test_lossless import (
    EAGER,
    FILES,
    RULES,
    SAMPLING,
    Silent,
    Vocabulary,
    drafter_from_file,
)
from tests.engine.test_session import Conversation, end_of, text_of
from tests.engine.tiny_models import build, config_of, tensors_of
from tests.engine.toy import (
    TOY_INFO,
    ScriptedDrafter,
    ToyModel,
    ToyTemplate,
    ToyTokenizer,
)
from turbodflash_engine import plugins
from turbodflash_engine.decode import Drafting, Ending, Shift, Window, decode, prefill
from turbodflash_engine.drafters._base import Drafter, NoDrafter
from turbodflash_engine.errors import DoesNotFit
from turbodflash_engine.models._base import CachePlan, Model
from turbodflash_engine.options import CACHE_TYPES, SampleOptions, SayOptions, SpecOptions
from turbodflash_engine.sampling import Sampler
from turbodflash_engine.session import Session
from turbodflash_kernels.device import open_device

GREEDY = SampleOptions(temp=0, seed=1)
LETTERS = st.text("ABCDEFG", min_size=1, max_size=30)


def talk(capacity: int, keep: int | None, drafter: ScriptedDrafter | None = None) -> Session:
    """With the toy, whose next token depends on the last three alone."""
    return Session(
        ToyModel(capacity=capacity),
        ToyTokenizer(),
        ToyTemplate(),
        TOY_INFO,
        drafter or ScriptedDrafter(lambda at, width: ()),
        chunk=8,
        spec=SpecOptions(width=99),
        keep=keep,
    )


def said(session: Session, prompt: str, count: int, sample: SampleOptions = GREEDY) -> str:
    return text_of(session.complete(prompt, SayOptions(max_tokens=count, sample=sample)))


@given(LETTERS, st.integers(24, 50), st.integers(-1, 30), st.integers(0, 7))
@settings(deadline=None, max_examples=12)
def test_a_text_goes_on_as_if_the_context_had_no_end(
    prompt: str, capacity: int, keep: int, wrong_every: int
) -> None:
    """Of a model that looks back on three tokens, three of which are always left."""
    endless = said(talk(1000, None), prompt, 150)
    text = ToyTokenizer().encode(prompt + endless, add_special=True, parse_special=True)

    def script(at: int, width: int) -> list[int]:
        return [9 if wrong_every and at % wrong_every == 1 else 10] * min(width, 5)

    assert len(text) > 2 * capacity
    for drafter in (None, ScriptedDrafter(script)):
        session = talk(capacity, keep, drafter)
        assert said(session, prompt, 150) == endless
        assert session.used <= capacity
        assert session.last is not None
        assert session.last.dropped > 0
        assert len(session.held) == session.used


@given(st.integers(1, 500), st.integers(0, 500), st.integers(0, 5000))
def test_what_leaves_makes_room_and_never_more_than_needed(
    capacity: int, keep: int, tokens: int
) -> None:
    shift, room = Shift.of(capacity, keep), max(capacity - 1, 1)
    due = shift.due(tokens, room)
    assert shift.keep == min(keep, 3 * capacity // 4)
    assert shift.keep + shift.drop <= max(capacity, 1)
    assert tokens - due <= room
    assert due == 0 or tokens - due > room - shift.drop
    if tokens > room > 1:
        assert tokens - due >= shift.keep


def test_the_first_tokens_stay_and_half_of_the_others_leave() -> None:
    session = talk(16, 3)
    said(session, "ABCDEFGHIJ", 6)
    full = session.held
    assert len(full) == 16
    said(session, "ABCDEFGHIJ", 7)
    assert session.held[:-1] == (
        *full[:4],
        *full[10:],
    )  # the first token of all, three, and six less
    assert session.last is not None
    assert session.last.dropped == 6


@pytest.mark.parametrize(("keep", "stays"), [(0, 1), (5, 6), (99, 24), (-1, 9)])
def test_what_never_leaves(keep: int, stays: int) -> None:
    session = talk(32, keep)
    prompt = "ABCDEFGH"
    said(session, prompt, 100)
    tokens = ToyTokenizer().encode(prompt, add_special=True, parse_special=True)
    kept = min(stays, len(tokens))
    assert list(session.held[:kept]) == tokens[:kept]
    assert session.last is not None
    assert session.last.dropped % ((32 - stays) // 2) == 0


def test_without_it_a_full_context_ends_the_answer() -> None:
    with pytest.raises(DoesNotFit, match="41 tokens; the context holds 32") as error:
        said(talk(32, None), "A" * 40, 5)
    assert "--context-shift" in str(error.value.hint)
    for keep, most in ((None, -1), (0, -2)):
        session = talk(32, keep)
        said(session, "ABC", most)
        assert session.last is not None
        assert session.last.reason == "context"
        assert session.last.dropped == 0


def test_a_long_chat_is_read_once() -> None:
    """Each turn computes what is new, whatever left the context meanwhile."""
    session = talk(64, 2)
    model: Any = session._model
    whole, computed = "", 0
    letters = SampleOptions(temp=0, seed=1, logit_bias=tuple((t, -np.inf) for t in range(8)))
    for turn in range(60):
        whole += "ABCDEFGHIJ"[turn % 7 :]
        del model.passes[:]
        answer = said(session, whole, 9, letters)
        fed = sum(map(len, model.passes))
        assert fed <= 10 + 9 + 1 or not turn, turn  # the answer's last token was not fed before
        whole += answer
        computed += fed
        assert session.used <= 64
    assert computed <= len(whole) + 60


def test_a_prompt_that_fits_is_seen_whole_after_a_shift() -> None:
    session, fresh = talk(32, 2), talk(32, 2)
    prompt = "ABCDEFGHIJKLMNOPQRST"
    said(session, prompt, 40)
    said(session, prompt, 3)
    said(fresh, prompt, 3)
    assert session.held == fresh.held
    assert session.last is not None
    assert session.last.cached_tokens <= 3  # what never left, and nothing that was told by others


def test_a_prompt_that_does_not_fit_is_cut_by_the_same_rule() -> None:
    events = list(talk(32, 2).complete("AB" + "C" * 30 + "DEFGH", SayOptions(max_tokens=1)))
    assert end_of(events).dropped == 14
    assert end_of(events).prompt_tokens == 38 - 14


def test_what_is_cut_short_leaves_what_was_kept() -> None:
    session = talk(16, 3)
    model: Any = session._model
    said(session, "ABCDEFGHIJ", 6)
    before = session.held
    forget = model.layer.forget

    def stopped(start: int, stop: int, length: int) -> None:
        forget(start, start + 1, length)
        raise KeyboardInterrupt

    model.layer.forget = stopped
    with pytest.raises(KeyboardInterrupt):
        said(session, "ABCDEFGHIJ", 7)
    assert session.held == before[:4]
    assert model.layer.tokens == list(before[:4])
    model.layer.forget = forget
    assert said(session, "ABCDEFGHIJ", 40) == said(talk(99, None), "ABCDEFGHIJ", 40)


def test_a_conversation_that_never_shifts_is_as_without() -> None:
    plain = Conversation().heard("ABCDEF")
    assert said(talk(256, 0), "ABCDEF", 12, SampleOptions(seed=42)) == text_of(plain)


CONTEXT, LONG = 32, 75
PROMPT = [7, 300, 301, 302, 40, 41, 300, 301, 302, 40]


class Bench:
    """A real model of a small context, and texts that are longer than it."""

    def __init__(self, target: str, format: str) -> None:
        # two threads are tried with one format: where they share a core, they wait for each other
        self.device = open_device("cpu", 2 if format == "f32" else 1)
        file = tensors_of(target)
        self.model: Model = build(*file, self.device, positions=CONTEXT, kv=format)
        self._plain: dict[str, list[int]] = {}

    def told(self, drafter: Drafter, options: SpecOptions, sample: SampleOptions) -> list[int]:
        window, shift = Window(self.model, drafter), Shift.of(CONTEXT, 4)
        self.model.cache.truncate(0)
        drafter.truncate(0)
        history = window.begin(PROMPT, shift, CONTEXT - 1)
        sampler = Sampler(sample, Vocabulary(), 1)
        seen = _returned(prefill(self.model, drafter, history, 4, sampler.look))
        ending = Ending(Silent(), eog=(), left=LONG, limit="length")
        self.drafting = Drafting(drafter, options)
        shifting = partial(window.make_room, shift)
        steps = decode(self.model, self.drafting, sampler, ending, history, seen, shifting)
        self.accepted = [step.accepted for step in steps if step.passed]
        window.end(history, shift)
        assert window.dropped >= LONG - CONTEXT
        return history[len(PROMPT) :]

    def check(self, drafter: Drafter, **options: Any) -> None:
        for name, sample in SAMPLING.items():
            told = self.told(drafter, SpecOptions(**options), sample)
            assert told == self.plain(name), (name, options)

    def plain(self, name: str) -> list[int]:
        if name not in self._plain:
            self._plain[name] = self.told(NoDrafter(), SpecOptions(), SAMPLING[name])
        return self._plain[name]


def _returned(reading: Iterator[Any]) -> Any:
    while True:
        try:
            next(reading)
        except StopIteration as done:
            return done.value


bench = cache(Bench)


@pytest.mark.parametrize(
    "target", [name for name in plugins.names("models") if not config_of(name).state_bytes]
)
@pytest.mark.parametrize("format", CACHE_TYPES)
def test_a_text_of_a_real_model_goes_on(format: str, target: str) -> None:
    told = bench(target, format).told(NoDrafter(), SpecOptions(), SAMPLING["greedy"])
    assert len(told) == LONG
    again = bench(target, format).told(NoDrafter(), SpecOptions(), SAMPLING["greedy"])
    assert told == again


@pytest.mark.parametrize("format", ["f32", "turbo3"])
@pytest.mark.parametrize("name", FILES)
def test_a_draft_from_a_file_changes_no_token_of_it(name: str, format: str) -> None:
    drafter = drafter_from_file(name, "qwen3", format)
    for options in ({"width": 5}, {}):
        bench("qwen3", format).check(drafter, **options)


@pytest.mark.parametrize("name", RULES)
def test_a_guess_from_the_text_changes_no_token_of_it(name: str) -> None:
    drafter = plugins.find("drafters", name).build(EAGER)
    for width in (3, 16):
        bench("llama", "f32").check(drafter, width=width)


@pytest.mark.parametrize("format", ["f32", "q4_0"])
def test_the_model_as_its_own_draft_is_right_across_a_shift(format: str) -> None:
    """What left the one's cache left the other's, and what stayed stands where it stands there."""
    place = bench("llama", format)
    plan = CachePlan(CONTEXT, format, format)
    drafter = draft_for(place.model, place.device, tensors_of("llama"), SpecOptions(), plan)
    place.check(drafter, width=4)
    place.told(drafter, SpecOptions(width=4), SAMPLING["greedy"])
    full = [accepted for accepted in place.accepted if accepted == 4]
    assert len(full) >= 0.6 * len(place.accepted)  # others end at a full context
    assert sum(place.accepted) >= 0.7 * LONG
