from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest

import turbodflash_engine
from tests.engine.toy import TOY_INFO, ScriptedDrafter, ToyModel, ToyTemplate, ToyTokenizer
from turbodflash_engine.errors import BadUsage, DoesNotFit
from turbodflash_engine.events import Event, Finished, Progress, Started, Text, Verified
from turbodflash_engine.options import LoadOptions, SampleOptions, SayOptions, SpecOptions
from turbodflash_engine.session import Session
from turbodflash_engine.tokenizer.marks import Marks

SEEDED = SampleOptions(seed=42)


def say(**settings: Any) -> SayOptions:
    return SayOptions(**({"max_tokens": 12, "sample": SEEDED} | settings))


class Conversation:
    """A session over the toy, with what it is made of within reach."""

    def __init__(self, drafter: ScriptedDrafter | None = None, **settings: Any) -> None:
        self.model = ToyModel(**settings)
        self.drafter = drafter or ScriptedDrafter(lambda at, budget: ())
        self.session = Session(
            self.model,
            ToyTokenizer(),
            ToyTemplate(),
            TOY_INFO,
            self.drafter,
            chunk=8,
            spec=SpecOptions(width=99),
        )

    def heard(self, prompt: str, **settings: Any) -> list[Event]:
        return list(self.session.complete(prompt, say(**settings)))


def text_of(events: Iterable[Event]) -> str:
    return "".join(event.piece for event in events if isinstance(event, Text))


def end_of(events: list[Event]) -> Finished:
    assert isinstance(events[-1], Finished)
    return events[-1]


def test_an_answer_begins_with_its_start_and_finishes_with_its_sums() -> None:
    events = Conversation().heard("ABC")
    assert events[0] == Started(prompt_tokens=4, cached_tokens=0, seed=42)
    end = end_of(events)
    assert (end.reason, end.prompt_tokens, end.cached_tokens) == ("length", 4, 0)
    assert (end.new_tokens, end.steps, end.seed) == (12, 11, 42)
    assert end.prefill_seconds > 0
    assert end.decode_seconds > 0
    assert all(isinstance(event, Text) for event in events[1:-1])


def test_a_long_prompt_reports_as_it_is_read() -> None:
    events = Conversation().heard("A" * 19, max_tokens=0)
    assert events[1:-1] == [Progress("prompt", done, 20, "tokens") for done in (8, 16, 20)]
    assert end_of(events).new_tokens == 0
    assert end_of(events).reason == "length"


def test_chat_renders_complete_does_not() -> None:
    messages = [{"role": "user", "content": "AB"}, {"role": "assistant", "content": "C"}]
    spoken = list(Conversation().session.chat(messages, say()))
    assert text_of(spoken) == text_of(Conversation().heard("ABC"))


def test_template_variables_win_over_the_option() -> None:
    class Watching(ToyTemplate):
        def render(self, messages: Any, /, **variables: Any) -> str:
            self.variables = variables
            return super().render(messages)

    template = Watching()
    session = Session(ToyModel(), ToyTokenizer(), template, TOY_INFO)
    turn = [{"role": "user", "content": "A"}]
    list(session.chat(turn, say()))
    assert template.variables == {}
    list(session.chat(turn, say(thinking=False)))
    assert template.variables == {"enable_thinking": False}
    list(session.chat(turn, say(thinking=True, template_kwargs={"enable_thinking": False, "x": 1})))
    assert template.variables == {"enable_thinking": False, "x": 1}


def test_thoughts_are_told_apart_in_a_chat_only() -> None:
    whole = text_of(Conversation().heard("ABC"))
    template = ToyTemplate()
    template.thought_marks = Marks(whole[:2], whole[5])
    session = Session(ToyModel(), ToyTokenizer(), template, TOY_INFO)
    turn = [{"role": "user", "content": "ABC"}]
    told = [event for event in session.chat(turn, say()) if isinstance(event, Text)]
    thought = "".join(event.piece for event in told if event.thought)
    answer = "".join(event.piece for event in told if not event.thought)
    end = whole.index(whole[5], 2)
    assert (thought, answer) == (whole[2:end], whole[end + 1 :])
    unsplit = list(session.chat(turn, say(split_thoughts=False)))
    assert text_of(unsplit) == whole
    assert not any(event.thought for event in unsplit if isinstance(event, Text))
    assert text_of(session.complete("ABC", say())) == whole


def test_marks_of_thoughts_are_seen_where_they_are_control_tokens() -> None:
    """The toy's second token is the mark; as any control token it has no text of its own."""

    class Silent(ToyTokenizer):
        def piece(self, token: int, /, special: bool = False) -> bytes:
            hidden = token == mark and not special
            return b"" if hidden else super().piece(token, special)

    whole = text_of(Conversation().heard("ABC"))
    (mark,) = ToyTokenizer().encode(whole[1], add_special=False, parse_special=True)
    template = ToyTemplate()
    session = Session(ToyModel(), Silent(), template, TOY_INFO)
    turn = [{"role": "user", "content": "ABC"}]
    assert text_of(list(session.chat(turn, say()))) == whole.replace(whole[1], "")
    template.thought_marks = Marks("never", whole[1], preserved=(whole[1], "never"))
    assert text_of(list(session.chat(turn, say()))) == whole


def test_the_same_seed_says_the_same_and_another_attempt_does_not() -> None:
    talk = Conversation()
    first, again = talk.heard("ABC"), talk.heard("ABC")
    assert text_of(first) == text_of(again)
    other = talk.heard("ABC", attempt=1)
    assert text_of(other) != text_of(first)
    assert end_of(other).seed == 43
    by_seed = talk.heard("ABC", sample=SampleOptions(seed=43))
    assert text_of(by_seed) == text_of(other)
    assert text_of(talk.heard("ABC")) == text_of(first)


def test_a_random_seed_is_told_and_repeats_the_answer() -> None:
    talk = Conversation()
    random = talk.heard("ABC", sample=SampleOptions())
    seed = end_of(random).seed
    assert isinstance(random[0], Started)
    assert random[0].seed == seed
    assert text_of(talk.heard("ABC", sample=SampleOptions(seed=seed))) == text_of(random)


def test_what_the_cache_holds_is_not_computed_again() -> None:
    talk = Conversation()
    letters_only = replace(SEEDED, logit_bias=tuple((token, -inf) for token in range(8)))
    answer = text_of(talk.heard("ABCDEF", sample=letters_only))
    assert len(answer) == 12
    del talk.model.passes[:]
    events = talk.heard("ABCDEF" + answer + "GH", max_tokens=0)
    assert end_of(events).cached_tokens == 7 + 11  # the answer's last token was never fed
    assert sum(map(len, talk.model.passes)) == 3


def test_the_same_prompt_computes_its_last_token_only() -> None:
    talk = Conversation()
    first = talk.heard("ABCDEF")
    del talk.model.passes[:]
    second = talk.heard("ABCDEF")
    assert end_of(second).cached_tokens == 6
    assert talk.model.passes[0] == [talk.model.layer.tokens[6]]
    assert text_of(second) == text_of(first)


@pytest.mark.parametrize("prompt", ["ABXY", "X", "ABC", "ABCDEFGHIJKLMNOP"])
def test_another_prompt_answers_as_in_a_new_session(prompt: str) -> None:
    talk = Conversation()
    talk.heard("ABCDEF")
    assert text_of(talk.heard(prompt)) == text_of(Conversation().heard(prompt))
    assert talk.drafter.seen == talk.model.layer.tokens
    assert talk.session.used == len(talk.model.layer.tokens)


def test_drafts_are_told_and_change_nothing() -> None:
    plain = Conversation().heard("ABC")
    tokens = ScriptedDrafter(lambda at, budget: ())
    reference = Conversation(tokens)
    reference.heard("ABC")
    known = [*reference.model.layer.tokens, 0]
    talk = Conversation(ScriptedDrafter(lambda at, budget: [*known[at : at + 2], 0][:budget]))
    events = talk.heard("ABC")
    assert text_of(events) == text_of(plain)
    verified = [event for event in events if isinstance(event, Verified)]
    assert verified[0] == Verified(drafted=3, accepted=2)
    end = end_of(events)
    assert end.drafted == sum(event.drafted for event in verified)
    assert end.accepted == sum(event.accepted for event in verified)
    assert end.new_tokens == 1 + end.accepted + end.steps
    assert talk.session.used == reference.session.used


def test_a_stop_string_ends_the_answer_and_is_not_told() -> None:
    whole = text_of(Conversation().heard("ABC"))
    events = Conversation().heard("ABC", stop=(whole[3:6],))
    assert text_of(events) == whole[: whole.index(whole[3:6])]
    assert end_of(events).reason == "reverse-prompt"


def test_the_end_of_generation_stops_and_is_shown_only_on_request() -> None:
    talk = Conversation(end=4.0)
    quiet, loud = talk.heard("AB", max_tokens=-1), talk.heard("AB", max_tokens=-1, special=True)
    assert end_of(quiet).reason == "stop"
    assert text_of(loud) in (text_of(quiet) + "<1>", text_of(quiet) + "<2>")


def test_a_full_context_ends_the_answer() -> None:
    talk = Conversation(capacity=20)
    events = talk.heard("ABC", max_tokens=-1)
    assert end_of(events).reason == "context"
    assert end_of(events).new_tokens == 16
    exactly = talk.heard("ABC", max_tokens=16)
    assert end_of(exactly).reason == "length"


@pytest.mark.parametrize(
    ("letters", "max_tokens", "sentence", "hint"),
    [
        (30, -1, "the prompt has 31 tokens; the context holds 20", "use -c 32 or more"),
        (20, 0, "the prompt has 21 tokens; the context holds 20", "use -c 32 or more"),
        (19, 5, "the prompt has 20 tokens; the context holds 20, and", "use -c 32 or more"),
    ],
)
def test_a_prompt_that_does_not_fit_says_both_numbers(
    letters: int, max_tokens: int, sentence: str, hint: str
) -> None:
    talk = Conversation(capacity=20)
    with pytest.raises(DoesNotFit) as caught:
        talk.session.complete("A" * letters, say(max_tokens=max_tokens))
    assert str(caught.value).startswith(sentence)
    assert caught.value.hint.startswith(hint)
    assert talk.model.passes == []
    assert text_of(talk.heard("ABC"))


def test_nothing_to_answer_is_refused() -> None:
    session = Conversation().session
    with pytest.raises(BadUsage, match="the prompt is empty"):
        session.complete("")
    with pytest.raises(BadUsage, match="no message"):
        session.chat([])
    with pytest.raises(BadUsage, match="stop string is empty"):
        SayOptions(stop=("",))
    with pytest.raises(BadUsage, match="logit bias for token 99"):
        session.complete("A", say(sample=SampleOptions(logit_bias=((99, 1.0),))))


@pytest.mark.parametrize("events", range(1, 9))
def test_a_closed_answer_leaves_the_session_whole(events: int) -> None:
    talk = Conversation()
    answer = talk.session.complete("ABCDEFGHIJKL", say())
    for _ in range(events):
        next(answer)
    answer.close()  # type: ignore[attr-defined]
    assert talk.session.last is not None
    assert talk.session.last.reason == "interrupted"
    assert talk.session.used == len(talk.model.layer.tokens)
    assert talk.drafter.seen == talk.model.layer.tokens
    assert text_of(talk.heard("ABCDEFGHIJKL")) == text_of(Conversation().heard("ABCDEFGHIJKL"))


@pytest.mark.parametrize("failing", range(1, 6))
def test_an_interrupted_pass_leaves_the_session_whole(failing: int) -> None:
    talk = Conversation()
    talk.model.fail_at_pass = failing
    with pytest.raises(KeyboardInterrupt):
        talk.heard("ABCDEFGHIJKL")
    assert talk.drafter.seen == talk.model.layer.tokens
    again = talk.heard("ABCDEFGHIJKL")
    assert text_of(again) == text_of(Conversation().heard("ABCDEFGHIJKL"))
    assert talk.session.last == again[-1]


@pytest.mark.parametrize("failing", range(1, 5))
def test_an_interrupted_drafter_leaves_the_session_whole(failing: int) -> None:
    class Interrupted(ScriptedDrafter):
        def observe(self, tokens: Any, positions: range, taps: Any, coming: int = 0) -> None:
            super().observe(tokens, positions, taps, coming)
            self.calls = getattr(self, "calls", 0) + 1
            if self.calls == failing:
                raise KeyboardInterrupt

    talk = Conversation(Interrupted(lambda at, budget: [20, 21]))
    with pytest.raises(KeyboardInterrupt):
        talk.heard("ABCDEFGHIJKL")
    assert talk.drafter.seen == talk.model.layer.tokens
    assert text_of(talk.heard("ABCDEF")) == text_of(Conversation().heard("ABCDEF"))


def test_beginning_another_answer_ends_the_one_before() -> None:
    talk = Conversation()
    first = talk.session.complete("ABC", say())
    next(first), next(first)
    second = talk.heard("XYZ")
    assert list(first) == []
    assert text_of(second) == text_of(Conversation().heard("XYZ"))


def test_tokens_are_counted_without_the_special_ones() -> None:
    session = Conversation().session
    assert session.count("ABé") == 4
    assert session.count("") == 0
    assert session.used == 0
    list(session.complete("AB", say(max_tokens=0)))
    assert session.used == 3


def test_speeds_count_what_was_computed() -> None:
    end = Finished("stop", 100, 60, 11, prefill_seconds=2.0, decode_seconds=5.0, seed=0)
    assert end.prompt_tokens_per_second == 20.0
    assert end.tokens_per_second == 2.0
    nothing = Finished("length", 4, 0, 0, prefill_seconds=0.0, decode_seconds=0.0, seed=0)
    assert (nothing.prompt_tokens_per_second, nothing.tokens_per_second) == (0.0, 0.0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"context": -1},
        {"threads": -1},
        {"batch": 0},
        {"ubatch": 0},
        {"device": "abacus"},
        {"rope_scaling": "sideways"},
        {"rope_scale": 0.0},
        {"rope_freq_base": float("nan")},
        {"yarn_orig_ctx": 0},
    ],
    ids=str,
)
def test_impossible_load_options_are_refused(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(BadUsage, match=f"{name} is "):
        LoadOptions(Path("x.gguf"), **wrong)


def test_the_front_door_is_light_until_it_is_used() -> None:
    """Options, events and errors come without numpy; every public name can be had."""
    code = (
        "import sys, turbodflash_engine as engine\n"
        "engine.SayOptions(), engine.Text('x')\n"
        "sys.exit(any(name in sys.modules for name in ('numpy', 'jinja2', 'tokenizers')))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path)}, check=False
    )
    assert done.returncode == 0
    assert turbodflash_engine.Session is Session
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = turbodflash_engine.nonsense
