"""Thoughts may cost so many tokens and no more, and drafting does not change which."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.toy import TOY_INFO, ScriptedDrafter, ToyModel, ToyTemplate, ToyTokenizer
from turbodflash_engine.decode.budget import Budget, Budgeted
from turbodflash_engine.errors import BadUsage
from turbodflash_engine.events import Text
from turbodflash_engine.options import SampleOptions, SayOptions, SpecOptions
from turbodflash_engine.session import Session
from turbodflash_engine.tokenizer.marks import Marks

MARKS = Marks("[", "]", again=True)
ENDLESS = 30


class Scripted:
    """A sampler that says a text, whatever it sees, and counts how often it is asked."""

    seed = 1

    def __init__(self, text: str) -> None:
        self.tokens = encoded(text)

    def look(self, rows: Any) -> Sequence[Any]:
        return [rows]

    def choose(self, seen: Any, position: int, history: Sequence[int]) -> int:
        return self.tokens.pop(0)


def encoded(text: str) -> list[int]:
    return ToyTokenizer().encode(text, add_special=False, parse_special=True)


def decoded(tokens: Sequence[int]) -> str:
    return b"".join(map(ToyTokenizer().piece, tokens)).decode("utf-8", "replace")


def written(text: str, budget: Budget, *, thinking: bool = False, prompt: str = "Q") -> str:
    """What comes out where the sampler alone would say the text, and nothing after it."""
    sampler = Scripted(text)
    budgeted = Budgeted(sampler, ToyTokenizer(), MARKS, budget, thinking=thinking)
    history = encoded(prompt)
    start = len(history)
    while sampler.tokens:
        history.append(budgeted.choose(None, len(history), history))
    return decoded(history[start:])


@pytest.mark.parametrize(
    ("text", "budget", "came"),
    [
        ("[ABC]D", 9, "[ABC]D"),
        ("[ABC]D", 4, "[ABC]D"),
        ("[ABC]D", 3, "[ABC]]D"),  # the model's own mark is one token too late
        ("[ABCDEF", 2, "[AB]CDEF"),
        ("[ABC", 0, "[]ABC"),
        ("ABC", 0, "ABC"),
        ("A[BC]D[EF", 4, "A[BC]D[E]F"),  # all thoughts of an answer share the budget
        ("A[BC]D[EF", 2, "A[BC]]D[]EF"),
        ("[Aé]B", 2, "[Aé]]B"),  # a character is not cut in two
        ("[AéB", 1, "[A]éB"),
    ],
)
def test_thoughts_end_where_the_budget_does(text: str, budget: int, came: str) -> None:
    assert written(text, Budget(budget)) == came


def test_a_prompt_may_have_opened_the_thought() -> None:
    assert written("ABCD", Budget(2), thinking=True) == "AB]CD"


def test_thoughts_of_the_prompt_cost_nothing() -> None:
    assert written("[ABC", Budget(2), prompt="[AAAAAAA]Q") == "[AB]C"


def test_a_message_comes_before_the_mark() -> None:
    assert written("[ABC", Budget(1, "XY")) == "[AXY]BC"


@settings(max_examples=50, deadline=None)
@given(st.text("ABé[]", max_size=40), st.integers(0, 12))
def test_no_answer_thinks_longer_than_it_may(text: str, budget: int) -> None:
    opening, closing = encoded("[]")
    thinking, cost = False, 0
    for token in encoded(written(text, Budget(budget))):
        cost += thinking and token != closing
        thinking = token != closing if thinking else token == opening
    assert cost <= budget + 1  # the second half of a character


def session(drafter: Callable[[int, int], Sequence[int]] | None = None) -> Session:
    template = ToyTemplate()
    template.thought_marks = MARKS
    return Session(
        ToyModel(),
        ToyTokenizer(),
        template,
        TOY_INFO,
        ScriptedDrafter(drafter or (lambda at, budget: ())),
        spec=SpecOptions(width=99),
    )


def heard(session: Session, **options: Any) -> tuple[str, str]:
    """(thought, answer); the prompt has opened the thought."""
    say = SayOptions(max_tokens=ENDLESS, sample=SampleOptions(seed=7), **options)
    turn = [{"role": "user", "content": "ABC["}]
    told = [event for event in session.chat(turn, say) if isinstance(event, Text)]
    return (
        "".join(event.piece for event in told if event.thought),
        "".join(event.piece for event in told if not event.thought),
    )


def test_a_session_ends_thoughts_in_time() -> None:
    free = "".join(heard(session(), split_thoughts=False))
    thought, answer = heard(session(), thought_budget=4)
    assert free.startswith(thought)
    assert len(thought) <= 4
    assert answer
    said, _ = heard(session(), thought_budget=4, budget_message="ZZ")
    assert said == thought + "ZZ"


@pytest.mark.parametrize("budget", [0, 1, 5, 9])
def test_drafting_changes_nothing(budget: int) -> None:
    plain = session()
    expected = heard(plain, thought_budget=budget)
    text = plain.held
    right = session(lambda at, budget: text[at : at + budget])
    assert heard(right, thought_budget=budget) == expected
    wrong = session(lambda at, budget: [9] * min(budget, 3))
    assert heard(wrong, thought_budget=budget) == expected


def test_a_budget_is_checked() -> None:
    with pytest.raises(BadUsage, match="thought_budget is -2"):
        SayOptions(thought_budget=-2)
