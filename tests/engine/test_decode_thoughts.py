from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turbodflash_engine.decode import Thoughts
from turbodflash_engine.tokenizer.marks import CHANNELS, TAGS, Marks

QWEN = [
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
    ("<think>look it up<tool_call>{}</tool_call>", "look it up", "<tool_call>{}</tool_call>"),
    ("<think>a</think>\n<tool_call>{}", "a", "<tool_call>{}"),
    ("", "", ""),
]
GEMMA = [
    ("Hello", "", "Hello"),
    ("<|channel>thought\nwhy<channel|>Because", "why", "Because"),
    ("<|channel>thought\n<channel|>Because", "", "Because"),
    ("<|channel>thought\na<channel|>b<|channel>thought\nc<channel|>d", "ac", "bd"),
    ("a<|channel>thought b<channel|>", "b", "a"),
    ("a <|channel>tho", "", "a tho"),
    ("a <|channel>final b", "", "a final b"),
    ("<|channel>final b", "", "final b"),
    ("a<channel|>b", "", "ab"),
    ("<|channel>thought\nnever ends <chan", "never ends <chan", ""),
    ("a<|channel><|channel>thought\nb<channel|> c", "b", "ac"),
]


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
    ("marks", "text", "thought", "answer"),
    [*((TAGS, *case) for case in QWEN), *((CHANNELS, *case) for case in GEMMA)],
)
@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_thoughts_are_told_apart_however_the_text_is_cut(
    marks: Marks, text: str, thought: str, answer: str, data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)))) | {0, len(text)})
    pieces = [text[a:b] for a, b in pairwise(cuts)]
    assert told(Thoughts(marks), pieces) == (thought, answer)


def test_a_prompt_may_have_opened_the_thoughts() -> None:
    assert told(Thoughts.after("user: hi<think>\n", TAGS), ["why</thi", "nk>so"]) == ("why", "so")
    assert told(Thoughts.after("<think></think>", TAGS), ["so"]) == ("", "so")


def test_a_prompt_that_closed_the_thoughts_leaves_answer_alone() -> None:
    off = Thoughts.after("<think>\n\n</think>\n\n", TAGS)
    assert told(off, ["<think>", "x</think>"]) == ("", "<think>x</think>")


def test_with_channels_an_answer_may_go_back_to_thinking() -> None:
    off = Thoughts.after("<|channel>thought\n<channel|>", CHANNELS)
    assert told(off, ["a<|channel>thought", "\nb<channel|>c"]) == ("b", "ac")


@given(st.lists(st.text()))
def test_without_marks_all_is_answer(pieces: list[str]) -> None:
    assert told(Thoughts.after("<think>", None), pieces) == ("", "".join(pieces))
