from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turbodflash_engine.decode import Thoughts

MARKS = ("<think>", "</think>")


def told(thoughts: Thoughts, pieces: list[str]) -> tuple[str, str]:
    """(thought, answer) of a stream in these pieces."""
    events = [event for piece in pieces for event in thoughts.push(piece)]
    events += thoughts.push("", over=True)
    assert all(event.piece for event in events)
    return (
        "".join(event.piece for event in events if event.thought),
        "".join(event.piece for event in events if not event.thought),
    )


@pytest.mark.parametrize(
    ("text", "thought", "answer"),
    [
        ("Hello", "", "Hello"),
        ("  Hello", "", "  Hello"),
        ("<think>why\n</think>\n\nBecause", "why\n", "Because"),
        ("\n<think>\nwhy</think>Because", "why", "Because"),
        ("<think></think>Because", "", "Because"),
        ("<think>\n\n</think>\n\nBecause", "", "Because"),
        ("<think>never ends </thin", "never ends </thin", ""),
        ("<thi", "", "<thi"),
        ("<thing>", "", "<thing>"),
        ("a <think>b</think>", "", "a <think>b</think>"),
        ("<think>a</think>b<think>c</think>", "a", "b<think>c</think>"),
        ("", "", ""),
    ],
)
@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_thoughts_are_told_apart_however_the_text_is_cut(
    text: str, thought: str, answer: str, data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)))) | {0, len(text)})
    pieces = [text[a:b] for a, b in pairwise(cuts)]
    assert told(Thoughts(MARKS), pieces) == (thought, answer)


def test_a_prompt_may_have_opened_the_thoughts() -> None:
    assert told(Thoughts.after("user: hi<think>\n", MARKS), ["why</thi", "nk>so"]) == ("why", "so")
    assert told(Thoughts.after("<think></think>", MARKS), ["so"]) == ("", "so")


@given(st.lists(st.text()))
def test_without_marks_all_is_answer(pieces: list[str]) -> None:
    assert told(Thoughts.after("<think>", None), pieces) == ("", "".join(pieces))
