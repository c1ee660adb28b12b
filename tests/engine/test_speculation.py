"""What is counted of drafting adds up, and drafting goes on as it was from answer to answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.test_session import end_of, text_of
from tests.engine.toy import TOY_INFO, VOCAB, ScriptedDrafter, ToyModel, ToyTemplate, ToyTokenizer
from turbodflash_engine.drafters._base import Draft
from turbodflash_engine.errors import BadUsage
from turbodflash_engine.events import Event, Finished, Speculation, Verified
from turbodflash_engine.options import MOST_TREE, SampleOptions, SayOptions, SpecOptions
from turbodflash_engine.session import Session

PROMPT = "ABCABC"


@dataclass
class Clock:
    """Every look at it takes a second."""

    now: float = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


@dataclass
class Plan:
    """Right for a while and then not, as a list of pairs says, position by position."""

    text: Sequence[int]
    pairs: Sequence[tuple[int, int]]  # (drafted, right)

    def __call__(self, at: int, width: int) -> list[int]:
        drafted, right = self.pairs[at % len(self.pairs)]
        bad = [(at * 7 + each) % VOCAB for each in range(drafted)]
        return [*self.text[at : at + min(right, drafted)], *bad][:drafted]


def heard(session: Session, prompt: str = PROMPT, **options: Any) -> list[Event]:
    settings = {"max_tokens": 24, "sample": SampleOptions(seed=42)} | options
    return list(session.complete(prompt, SayOptions(**settings)))


def session(drafter: Any = None, spec: SpecOptions | None = None, **model: Any) -> Session:
    parts = (ToyModel(**model), ToyTokenizer(), ToyTemplate(), TOY_INFO, drafter)
    return Session(*parts, chunk=8, spec=spec or SpecOptions(width=16), clock=Clock())


def text(tokens: int = 24) -> list[int]:
    """Prompt and answer."""
    plain = session(capacity=512)
    heard(plain, max_tokens=tokens)
    return [*plain.held, 0, 0, 0, 0]


TEXT = text()
plans = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=12)


def did(finished: Finished) -> Speculation:
    assert finished.speculation is not None
    return finished.speculation


@settings(deadline=None)
@given(plans, st.integers(1, 24), st.sampled_from([None, 0, 1, 3, 16]))
def test_what_is_counted_adds_up(
    pairs: list[tuple[int, int]], tokens: int, width: int | None
) -> None:
    talk = session(ScriptedDrafter(Plan(TEXT, pairs)), SpecOptions(width=width))
    events = heard(talk, max_tokens=tokens)
    end = end_of(events)
    sums = did(end)
    assert sums.emitted == sums.steps + sums.accepted == end.new_tokens - 1
    assert (sums.steps, sums.drafted, sums.accepted) == (end.steps, end.drafted, end.accepted)
    assert sums.accepted <= sums.tested <= sums.drafted
    assert sums.tested <= sums.accepted + sums.drafts
    assert sum(sums.widths) == sums.steps
    assert sum(width * count for width, count in enumerate(sums.widths)) == sums.drafted
    assert sum(sums.histogram) == sum(sums.widths[1:]) == sums.drafts
    assert sum(count * drafts for count, drafts in enumerate(sums.histogram)) == sums.accepted
    assert sum(sums.per_position) * sums.drafts == pytest.approx(sums.accepted)
    assert list(sums.per_position) == sorted(sums.per_position, reverse=True)
    assert sums.mean_accepted == (sums.emitted / sums.steps if sums.steps else 0.0)
    if width == 0:
        assert sums.drafts == sums.drafted == 0
    told = [event for event in events if isinstance(event, Verified)]
    assert [sum(column) for column in zip(*told, strict=True)] == (
        [sums.drafted, sums.accepted] if told else []
    )


@settings(deadline=None)
@given(plans)
def test_seconds_are_those_of_the_loop(pairs: list[tuple[int, int]]) -> None:
    end = end_of(heard(session(ScriptedDrafter(Plan(TEXT, pairs)))))
    sums = did(end)
    parts = (sums.seconds_draft, sums.seconds_verify, sums.seconds_observe, sums.seconds_rest)
    assert sum(parts) <= end.decode_seconds
    assert (sums.seconds_verify, sums.seconds_observe) == (sums.steps, sums.steps)
    assert sums.seconds_rest == 2 * sums.steps
    assert sums.seconds_draft >= sums.steps


def test_a_probe_is_counted_and_not_verified() -> None:
    truth = text(200)
    wrong = ScriptedDrafter(lambda at, width: [(truth[at] + 1) % VOCAB] * width)
    sums = did(end_of(heard(session(wrong, SpecOptions(), capacity=512), max_tokens=200)))
    assert sums.probes >= 1
    assert sums.drafts + sums.probes <= len(wrong.drafted) <= 20
    assert sums.accepted == 0


def test_who_drafts_is_named_and_weighed() -> None:
    drafter = ScriptedDrafter(lambda at, width: ())
    drafter.nbytes = 77
    sums = did(end_of(heard(session(drafter))))
    assert (sums.drafter, sums.nbytes, sums.synthetic) == ("scripted", 77, False)
    assert end_of(heard(session())).speculation is None


# from answer to answer


def right(width: int) -> ScriptedDrafter:
    """Knows the answer to the first prompt, at the positions of it."""
    return ScriptedDrafter(lambda at, most: TEXT[at : at + min(width, most)])


def test_the_same_prompt_again_is_drafted_as_before() -> None:
    talk = session(right(3))
    first, again = end_of(heard(talk)), end_of(heard(talk))
    assert again.cached_tokens > 0
    assert did(first).accepted == did(again).accepted > 10
    assert did(first).histogram == did(again).histogram


def test_after_another_conversation_drafting_is_as_in_a_new_session() -> None:
    talk = session(right(3))
    for prompt in ("XYZ", PROMPT + "DEF", PROMPT):
        events = heard(talk, prompt)
        fresh = heard(session(right(3)), prompt)
        assert text_of(events) == text_of(fresh)
        assert did(end_of(events)).histogram == did(end_of(fresh)).histogram


@pytest.mark.parametrize("attempt", [1, 2])
def test_another_attempt_drops_what_was_observed_of_the_first(attempt: int) -> None:
    drafter = right(3)
    talk = session(drafter)
    heard(talk)
    heard(talk, attempt=attempt)  # the drafter itself checks that it sees what is kept
    assert drafter.seen == list(talk.held)


@pytest.mark.parametrize("capacity", range(10, 20))
@pytest.mark.parametrize("width", [1, 4, 16])
def test_the_context_may_end_inside_a_block(capacity: int, width: int) -> None:
    plain = end_of(heard(session(capacity=capacity), max_tokens=-1))
    talk = session(right(width), capacity=capacity)
    end = end_of(heard(talk, max_tokens=-1))
    assert end.reason == plain.reason == "context"
    assert end.new_tokens == plain.new_tokens == capacity - 7
    assert talk.held == tuple(TEXT[: capacity - 1])


class Branching(ScriptedDrafter):
    """Its best guess is wrong at every second position, and its second one right."""

    def __init__(self) -> None:
        super().__init__(lambda at, width: ())

    def draft(self, history: Sequence[int], width: int) -> Draft:
        super().draft(history, width)
        at = len(history)
        truth = [*TEXT, *[0] * width][at : at + width]
        pairs = [(t, t + 1) if (at + i) % 2 else ((t + 1) % VOCAB, t) for i, t in enumerate(truth)]
        table = np.array(pairs, np.int32) % VOCAB
        log_probs = np.log(np.array([[0.6, 0.4]] * width, np.float32))
        return Draft(tuple(map(int, table[:, 0])), table, log_probs)


@pytest.mark.parametrize("nodes", [1, 4, 16, MOST_TREE])
@pytest.mark.parametrize("capacity", [15, 18, 256])
def test_a_tree_says_the_same_and_shows_the_drafter_its_path(nodes: int, capacity: int) -> None:
    plain = heard(session(capacity=capacity), max_tokens=-1 if capacity < 99 else 24)
    drafter = Branching()
    talk = session(drafter, SpecOptions(tree=nodes), capacity=capacity)
    events = heard(talk, max_tokens=-1 if capacity < 99 else 24)
    assert text_of(events) == text_of(plain)
    assert drafter.seen == list(talk.held)
    sums = did(end_of(events))
    assert sums.drafted <= nodes * sums.drafts
    if nodes >= 16 and capacity == 256:
        assert sums.mean_accepted > 2


# acceptance by chance


def test_synthetic_acceptance_is_marked_and_as_long_as_asked() -> None:
    wrong = ScriptedDrafter(lambda at, width: [20 + each for each in range(7)][:width])
    spec = SpecOptions(width=7, synth_rates=(1.0, 1.0, 0.0))
    sums = did(end_of(heard(session(wrong, spec), max_tokens=22)))
    assert sums.synthetic
    assert sums.histogram[:3] == (0, 0, 7)
    rates = SpecOptions(width=7, synth_rates=(0.8,) * 7)
    many = session(ScriptedDrafter(wrong.script), rates, capacity=4096)
    sums = did(end_of(heard(many, max_tokens=3000)))
    expected = sum(0.8**count for count in range(8))
    assert sums.mean_accepted == pytest.approx(expected, rel=0.1)
    assert sums.per_position[:2] == pytest.approx([0.8, 0.64], abs=0.06)


def test_synthetic_acceptance_repeats_with_its_seed() -> None:
    spec = SpecOptions(width=5, synth_rates=(0.7,) * 5)
    script = ScriptedDrafter(lambda at, width: [20] * width).script
    one, two = (did(end_of(heard(session(ScriptedDrafter(script), spec)))) for _ in range(2))
    assert one == two


def test_what_cannot_be_had_together_is_refused() -> None:
    with pytest.raises(BadUsage, match="tree"):
        SpecOptions(tree=8, synth_rates=(0.5,))
