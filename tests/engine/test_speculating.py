"""Answers with and without drafting are compared fairly, and a difference does not go unseen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engine.toy import (
    TOY_INFO,
    VOCAB,
    ScriptedDrafter,
    ToyModel,
    ToyOutput,
    ToyTemplate,
    ToyTokenizer,
)
from turbodflash_engine.errors import BadUsage
from turbodflash_engine.info import DraftInfo, Memory
from turbodflash_engine.loading import Loaded
from turbodflash_engine.options import LoadOptions, SpecOptions
from turbodflash_engine.speculating import Prompt, bench, measure_speculation
from turbodflash_engine.speculating.bench import PROMPT_TURNS

PROMPTS = (Prompt("code", "ABC DEF"), Prompt("code", "QUICKSORT"), Prompt("chat", "HELLO"))
OPTIONS = LoadOptions(Path("toy.gguf"), spec=SpecOptions(types=("ngram-mod",), width=4))
DRAFT = DraftInfo("ngram-mod", None, (1, 2), 16, Memory(1, 2, 3))


class Tokenizer(ToyTokenizer):
    """Every character is a token of the toy's alphabet."""

    def encode(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        return [0] * add_special + [8 + ord(character) % (VOCAB - 8) for character in text]


class Inexact(ToyModel):
    """Rows computed side by side differ from those computed alone."""

    def __call__(self, tokens: Sequence[int], logits: int = 1, *rest: Any, **taps: Any) -> Any:
        table, tapped = super().__call__(tokens, logits, *rest, **taps)
        return ToyOutput(np.roll(table, logits - 1, axis=1) if logits > 1 else table, tapped)


def loaded(model: ToyModel, drafter: ScriptedDrafter, **draft: Any) -> Any:
    info = TOY_INFO._replace(context=256, trained_context=256, draft=DRAFT._replace(**draft))
    nowhere: Any = None
    return Loaded(model, Tokenizer(), ToyTemplate(), info, nowhere, nowhere, drafter)  # type: ignore[arg-type]


Measure = Callable[..., dict[str, Any]]


@pytest.fixture
def measure(monkeypatch: pytest.MonkeyPatch) -> Measure:
    """Measures the toy; `model` and `draft` may be other ones."""

    def run(model: ToyModel | None = None, **draft: Any) -> dict[str, Any]:
        drafter = ScriptedDrafter(lambda at, width: [8 + (at + i) % 56 for i in range(width)])
        toy = loaded(model or ToyModel(), drafter, **draft)
        monkeypatch.setattr(bench, "load", lambda options, progress: toy)
        return measure_speculation(OPTIONS, PROMPTS, tokens=9, repeats=2)

    return run


def test_drafting_that_changes_nothing_is_identical(measure: Measure) -> None:
    figures = measure()
    assert figures["identical"] is True
    assert figures["first_difference"] is None
    assert figures["mean_accepted"] >= 1
    assert sum(figures["histogram"]) == sum(figures["widths"][1:]) > 0
    assert figures["prompt_tokens"] in range(128, 140)  # half of the context, in whole words
    assert (figures["draft_kind"], figures["n_max"], figures["draft_bytes"]) == ("ngram-mod", 16, 6)


def test_every_figure_is_there_overall_and_by_kind(measure: Measure) -> None:
    figures = measure()
    assert list(figures["kinds"]) == ["code", "chat"]
    for part in (figures, *figures["kinds"].values()):
        for name in ("off_tps", "on_tps", "speedup", "prompt_off_tps", "prompt_on_tps"):
            assert part[name] > 0
        assert part["speedup"] == pytest.approx(part["on_tps"] / part["off_tps"])
        assert part["prompt_ratio"] == pytest.approx(part["prompt_on_tps"] / part["prompt_off_tps"])
        beside = sum(part["seconds"].values()) - part["seconds"]["verify"]
        passes = sum(part["widths"])
        assert part["drafting_over_step"] == pytest.approx(beside / passes * part["off_tps"])
        assert part["identical"] is True


def test_a_changed_token_is_found(measure: Measure) -> None:
    figures = measure(Inexact())
    assert figures["identical"] is False
    found = figures["first_difference"]
    assert found["prompt"] in [prompt.text for prompt in PROMPTS]
    assert found["position"] in range(1, 9)
    assert found["off"] != found["on"]


def test_synthetic_acceptance_is_not_compared(measure: Measure) -> None:
    figures = measure(Inexact(), synthetic=True)
    assert (figures["synthetic"], figures["identical"]) == (True, None)
    assert figures["first_difference"] is None


def test_every_answer_starts_from_nothing(measure: Measure) -> None:
    model = ToyModel()
    measure(model)
    texts = [len(Tokenizer().encode(p.text, add_special=True, parse_special=True)) for p in PROMPTS]
    read = [len(tokens) for tokens in model.passes if tokens[0] == 0]  # passes that begin a prompt
    for size in texts:
        assert read.count(size) >= 4  # off and on, twice


def test_progress_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    toy = loaded(ToyModel(), ScriptedDrafter(lambda at, width: ()))
    monkeypatch.setattr(bench, "load", lambda options, progress: toy)
    seen: list[tuple[int, int]] = []
    measure_speculation(
        OPTIONS, PROMPTS, lambda event: seen.append((event.done, event.total)), tokens=4, repeats=1
    )
    wanted = 2 * (len(PROMPTS) + PROMPT_TURNS)
    assert seen == [(done, wanted) for done in range(1, wanted + 1)]


def test_without_a_prompt_there_is_nothing_to_compare() -> None:
    with pytest.raises(BadUsage, match="no prompt"):
        measure_speculation(OPTIONS, ())


def test_without_a_drafter_there_is_nothing_to_compare() -> None:
    with pytest.raises(BadUsage, match="no drafter"):
        measure_speculation(LoadOptions(Path("toy.gguf")), PROMPTS)
