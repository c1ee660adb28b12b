from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.toy import BOS, VOCAB, ScriptedDrafter, ToyModel, ToyTokenizer, all_of
from turbodflash_engine.decode import Drafting, Ending, StopStrings, decode, prefill
from turbodflash_engine.decode.prefill import _parts
from turbodflash_engine.drafters._base import Drafter, NoDrafter
from turbodflash_engine.options import SampleOptions, SpecOptions
from turbodflash_engine.sampling import Sampler
from turbodflash_engine.tokenizer.stream import Detokenizer

PROMPT = [BOS, 10, 11, 12, 10, 11]
SEED = 7
FOLLOWED = SpecOptions(width=99)
"""Whatever is drafted is verified."""


def ending(left: int = 24, stops: Sequence[str] = ()) -> Ending:
    tokenizer = ToyTokenizer()
    return Ending(Detokenizer(tokenizer), eog=tokenizer.eog, stops=stops, left=left, limit="length")


class Run:
    """One answer to the prompt: what came, and what was left behind."""

    def __init__(
        self,
        options: SampleOptions,
        drafter: Drafter | None = None,
        *,
        left: int = 24,
        stops: Sequence[str] = (),
        end: float = -np.inf,
        chunk: int = 4,
    ) -> None:
        drafter = drafter or NoDrafter()
        self.model = ToyModel(end=end)
        self.ending = ending(left, stops)
        self.history = list(PROMPT)
        sampler = Sampler(options, ToyTokenizer(), SEED)
        reading = prefill(self.model, drafter, PROMPT, chunk, sampler.look)
        try:
            while True:
                next(reading)
        except StopIteration as done:
            seen = done.value
        self.steps = []
        self.text = ""
        drafting = Drafting(drafter, FOLLOWED)
        for step in decode(self.model, drafting, sampler, self.ending, self.history, seen):
            self.steps.append(step)
            self.text += self.ending.text()
        self.tokens = [token for step in self.steps for token in step.tokens]


OPTIONS = {
    "greedy": SampleOptions(temp=0),
    "sampled": SampleOptions(temp=0.8, top_k=0),
    "default": SampleOptions(),
    "penalised": SampleOptions(repeat_penalty=1.3, frequency_penalty=0.2, repeat_last_n=16),
    "dry": SampleOptions(dry_multiplier=1.5, dry_allowed_length=1),
    "xtc": SampleOptions(xtc_probability=0.5, xtc_threshold=0.05, dynatemp_range=0.4),
    "mirostat": SampleOptions(mirostat=2),
    "mirostat 1": SampleOptions(mirostat=1),
}
PLAIN = {name: Run(options).tokens for name, options in OPTIONS.items()}

anyhow = pytest.mark.parametrize("name", OPTIONS)


def right(tokens: Sequence[int], width: int) -> ScriptedDrafter:
    """Drafts what will be said."""
    text = [*PROMPT, *tokens]
    return ScriptedDrafter(lambda at, budget: text[at : at + width])


def wrong(tokens: Sequence[int], width: int) -> ScriptedDrafter:
    """Drafts anything but what will be said."""
    text = [*PROMPT, *((token + 1) % VOCAB for token in tokens)]
    return ScriptedDrafter(lambda at, budget: text[at : at + width])


@st.composite
def guesses(draw: st.DrawFn, tokens: Sequence[int]) -> ScriptedDrafter:
    """Drafts of any width, right for a while and then anything."""
    plan = draw(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=30))
    text = [*PROMPT, *tokens]

    def script(at: int, budget: int) -> list[int]:
        width, good = plan[at % len(plan)]
        bad = [(at * 7 + each) % VOCAB for each in range(width)]
        return (text[at : at + min(good, width)] + bad)[:width]

    return ScriptedDrafter(script)


@anyhow
@settings(deadline=None)
@given(data=st.data())
def test_drafting_never_changes_a_token(name: str, data: st.DataObject) -> None:
    drafter = data.draw(guesses(PLAIN[name]))
    run = Run(OPTIONS[name], drafter)
    assert run.tokens == PLAIN[name]
    assert run.history == PROMPT + PLAIN[name]
    assert run.model.layer.tokens == run.history[:-1] == drafter.seen


@anyhow
@pytest.mark.parametrize("width", [1, 2, 4, 7, 15])
def test_right_guesses_save_passes(name: str, width: int) -> None:
    run = Run(OPTIONS[name], right(PLAIN[name], width))
    assert run.tokens == PLAIN[name]
    left = len(run.tokens) - 1  # the prompt's pass brings the first
    assert len(run.steps) - 1 == -(-left // (width + 1))
    assert all(step.accepted == step.drafted for step in run.steps)


@anyhow
@pytest.mark.parametrize("width", [1, 4])
def test_wrong_guesses_cost_only_time(name: str, width: int) -> None:
    run = Run(OPTIONS[name], wrong(PLAIN[name], width))
    assert run.tokens == PLAIN[name]
    assert all(len(step.tokens) == 1 for step in run.steps)


@pytest.mark.parametrize("count", range(1, 18))
@pytest.mark.parametrize("width", [0, 1, 3, 15, 40])
def test_the_number_of_tokens_is_exact(count: int, width: int) -> None:
    """Also when the drafter ignores its budget."""
    run = Run(OPTIONS["default"], right(PLAIN["default"], width), left=count)
    assert run.tokens == PLAIN["default"][:count]
    assert run.ending.reason == "length"
    assert run.model.cache.length == len(PROMPT) + count - 1
    assert all(len(each) <= count for each in run.model.passes[2:])


def test_no_tokens_means_no_pass() -> None:
    run = Run(OPTIONS["default"], left=0)
    assert (run.tokens, run.ending.reason) == ([], "length")
    assert run.model.layer.tokens == PROMPT


@pytest.mark.parametrize("slot", range(10))
@pytest.mark.parametrize("width", [0, 2, 4, 9])
def test_the_end_of_generation_may_fall_into_any_slot(
    slot: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = PLAIN["default"]
    first = tokens.index(tokens[slot])
    monkeypatch.setattr(ToyTokenizer, "eog", frozenset({tokens[slot]}))
    run = Run(OPTIONS["default"], right(tokens, width))
    assert run.tokens == tokens[: first + 1]
    assert run.ending.reason == "stop"
    assert run.model.layer.tokens == (PROMPT + run.tokens)[:-1]
    letters = ToyTokenizer()
    shown = b"".join(letters.piece(token) for token in run.tokens[:-1])
    assert run.text == shown.decode(errors="replace")


def test_a_guess_after_the_end_is_not_taken() -> None:
    """The end is guessed right, and what follows it would be right too."""
    plain = Run(SampleOptions(), left=60, end=4.0)
    assert plain.ending.reason == "stop"
    for width in range(1, 8):
        after = [*plain.tokens, *range(10, 30)]
        run = Run(SampleOptions(), right(after, width), left=60, end=4.0)
        assert run.tokens == plain.tokens
        assert run.model.layer.tokens == plain.model.layer.tokens


@pytest.mark.parametrize("length", [1, 2, 3, 5])
@pytest.mark.parametrize("width", [0, 1, 3, 8])
def test_a_stop_string_may_lie_across_steps(length: int, width: int) -> None:
    plain = Run(OPTIONS["default"])
    for start in range(0, 12):
        stop = plain.text[start : start + length]
        run = Run(OPTIONS["default"], right(plain.tokens, width), stops=["never", stop])
        assert run.text == plain.text[: plain.text.index(stop)]
        assert run.ending.reason == "reverse-prompt"
        assert run.tokens == plain.tokens[: len(run.tokens)]
        assert run.model.layer.tokens == (PROMPT + run.tokens)[:-1]


def test_the_context_is_never_overrun() -> None:
    model = ToyModel(capacity=len(PROMPT) + 9)
    drafter = ScriptedDrafter(lambda at, budget: [20] * 30)
    output = model(PROMPT)
    drafter.seen = list(PROMPT)
    history = list(PROMPT)
    end = Ending(Detokenizer(ToyTokenizer()), eog=(), left=9, limit="context")
    sampler = Sampler(SampleOptions(), ToyTokenizer(), SEED)
    seen = sampler.look(output)
    for _ in decode(model, Drafting(drafter, FOLLOWED), sampler, end, history, seen):
        pass
    assert len(history) == model.cache.capacity
    assert end.reason == "context"


@settings(deadline=None)
@given(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=40), st.integers(1, 50))
def test_a_prompt_in_chunks_is_one_prompt(prompt: list[int], chunk: int) -> None:
    model, drafter = ToyModel(), ScriptedDrafter(lambda at, budget: ())
    reading = prefill(model, drafter, prompt, chunk, all_of)
    reports = []
    try:
        while True:
            reports.append(next(reading))
    except StopIteration as done:
        (seen,) = done.value
    np.testing.assert_array_equal(seen.logits, model.row(prompt))
    assert model.layer.tokens == prompt == drafter.seen
    assert all(len(each) <= chunk for each in model.passes)
    assert [report.done for report in reports] == (
        [min(end, len(prompt)) for end in range(chunk, len(prompt) + chunk, chunk)]
        if len(prompt) > chunk
        else []
    )


def test_a_pass_that_fails_never_happened() -> None:
    for drafted in (0, 3):
        model, drafter = ToyModel(), ScriptedDrafter(lambda at, budget, n=drafted: [20] * n)
        drafter.seen = list(PROMPT)
        sampler = Sampler(SampleOptions(temp=0), ToyTokenizer(), SEED)
        seen = sampler.look(model(PROMPT))
        model.fail_at_pass = 3
        history = list(PROMPT)
        running = decode(model, Drafting(drafter, FOLLOWED), sampler, ending(), history, seen)
        next(running)
        next(running)
        before = list(model.layer.tokens)
        with pytest.raises(KeyboardInterrupt):
            next(running)
        assert model.layer.tokens == before == drafter.seen == history[: len(before)]


# stop strings

ALPHABET = st.text("ab.", max_size=12)


@settings(deadline=None)
@given(st.lists(st.text("ab.", min_size=1, max_size=4), max_size=3), st.lists(ALPHABET, max_size=8))
def test_text_ends_before_the_first_stop_string(stops: list[str], pieces: list[str]) -> None:
    filtered, shown = StopStrings(stops), ""
    whole = "".join(pieces)
    for count, piece in enumerate(pieces, 1):
        shown += filtered.push(piece)
        so_far = "".join(pieces[:count])
        assert so_far.startswith(shown)
        assert filtered.found == any(stop in so_far for stop in stops)
        if filtered.found:
            whole = so_far
            break
    shown += filtered.flush()
    ends = [whole.index(stop) for stop in stops if stop in whole]
    assert shown == whole[: min(ends, default=len(whole))]


def test_only_what_may_begin_a_stop_string_is_held_back() -> None:
    filtered = StopStrings(["User:", "<end>"])
    assert filtered.push("Hello U") == "Hello "
    assert filtered.push("ncle <e") == "Uncle "
    assert filtered.push("n") == ""
    assert filtered.flush() == "<en"


def test_penalties_count_the_tokens_before_a_drafted_one() -> None:
    """With a penalty that forbids what was said, no token comes twice, drafted or not."""
    options = replace(SampleOptions(temp=0), presence_penalty=100.0, repeat_last_n=-1)
    plain = Run(options)
    assert len(set(plain.tokens)) == len(plain.tokens)
    assert Run(options, right(plain.tokens, 6)).tokens == plain.tokens


@given(st.integers(1, 400), st.integers(1, 200))
def test_the_last_of_long_passes_is_not_short(total: int, chunk: int) -> None:
    parts = list(_parts(total, chunk))
    assert [start for start, _ in parts] == [0, *(end for _, end in parts[:-1])]
    assert parts[-1][1] == total
    sizes = [end - start for start, end in parts]
    assert len(sizes) == -(-total // chunk)
    assert all(1 <= size <= chunk for size in sizes)
    assert chunk < 64 or len(sizes) == 1 or sizes[-1] >= 32
