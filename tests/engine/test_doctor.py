"""Each known cause of low acceptance is found where it is, and only there."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.engine.toy import ScriptedDrafter
from turbodflash_engine.doctor import Diagnosis, diagnose, examine, trials
from turbodflash_engine.drafters._block.config import read_block
from turbodflash_engine.errors import BadUsage
from turbodflash_engine.events import Finished, Speculation
from turbodflash_engine.metadata import Metadata
from turbodflash_engine.options import LoadOptions, SayOptions, SpecOptions
from turbodflash_engine.speculating import Answered, Prompt

PROMPTS = (Prompt("code", "Sort."), Prompt("chat", "Hi!"))
SPEC = SpecOptions(model=Path("draft.gguf"), synth_rates=(1.0,))
OPTIONS = LoadOptions(Path("target.gguf"), spec=SPEC)
STEPS = 10
TOKENS = ("<pad>", "the", "<|mask|>", "cat")
CONTROL, ORDINARY = 3, 1

KEYS: Mapping[str, Any] = {
    "general.architecture": "dflash",
    "dflash.target_layers": [2, 4],
    "dflash.block_count": 1,
    "dflash.context_length": 64,
    "dflash.embedding_length": 64,
    "dflash.feed_forward_length": 64,
    "dflash.attention.head_count": 2,
    "dflash.attention.layer_norm_rms_epsilon": 1e-5,
    "tokenizer.ggml.mask_token_id": 2,
    "tokenizer.ggml.tokens": list(TOKENS),
    "tokenizer.ggml.token_type": [CONTROL, ORDINARY, CONTROL, ORDINARY],
}


class OpenFile(nullcontext[None]):
    def __init__(self, metadata: Metadata) -> None:
        super().__init__()
        self.metadata = metadata


@dataclass
class Draft:
    """An opened draft. What is built of it is told apart by its first tap: 100 + the mask."""

    file: OpenFile
    config: Any
    tensors: set[str]

    def build(self, *parts: Any) -> ScriptedDrafter:
        return ScriptedDrafter(lambda at, width: (), taps=(100 + self.config.mask, 4))


class Pair:
    """A target and a draft that is right as often as the taps and the thoughts deserve.

    accepted: tokens a pass by (first tap, thinking); what is not named accepts one in ten passes.
    """

    def __init__(self, accepted: Mapping[tuple[int, bool], int], **more: Any) -> None:
        self.accepted = accepted
        self.asked: list[tuple[int, bool, SayOptions]] = []
        self.scale = more.get("embedding_scale", 1.0)
        self.metadata = Metadata(KEYS | more.get("keys", {}), "draft.gguf")
        self.names = more.get("names", set())
        self.template = SimpleNamespace(
            supports_thinking=more.get("thinks", False),
            render=lambda messages, **variables: f"<user>{messages[0]['content']}{variables}",
        )
        self.layers = more.get("layers", 8)
        self.loaded_with: list[LoadOptions] = []

    def load(self, options: LoadOptions, progress: Any = None) -> Any:
        self.loaded_with.append(options)
        shared = SimpleNamespace(layers=self.layers, embedding_scale=self.scale)
        return SimpleLoaded(
            model=SimpleNamespace(shared=shared),
            template=self.template,
            info=SimpleNamespace(has_template=True, context=2048),
            drafts_on=SimpleNamespace(flush=lambda: None),
            drafter=ScriptedDrafter(lambda at, width: (), taps=(2, 4)),
        )

    def open_draft(self, spec: SpecOptions, told: Any) -> Any:
        return Draft(OpenFile(self.metadata), read_block(self.metadata), self.names)

    def of(self, loaded: Any, options: LoadOptions) -> Any:
        drafter = loaded.drafter
        return SimpleNamespace(
            loaded=loaded,
            drafter=drafter,
            draft=SimpleNamespace(kind="draft-dflash"),
            answer=lambda drafting, prompt, say: self.answer(drafter, say),
        )

    def answer(self, drafter: Any, say: SayOptions) -> Answered:
        thinking = say.thinking is not False
        self.asked.append((drafter.taps[0], thinking, say))
        accepted = STEPS * self.accepted.get((drafter.taps[0], thinking), 0) or 1
        did = Speculation("draft-dflash", STEPS, accepted=accepted, emitted=STEPS + accepted)
        return Answered(Finished("stop", 1, 0, 2, 1.0, 1.0, 0, speculation=did), (), "")


class SimpleLoaded(SimpleNamespace):
    def _replace(self, **changes: Any) -> SimpleLoaded:
        return SimpleLoaded(**(vars(self) | changes))


@pytest.fixture(name="examined")
def _examined(monkeypatch: pytest.MonkeyPatch) -> Any:
    def run(pair: Pair, **more: Any) -> Diagnosis:
        monkeypatch.setattr(examine, "load", pair.load)
        monkeypatch.setattr(examine, "open_draft", pair.open_draft)
        for module in (examine, trials):
            monkeypatch.setattr(module, "Rivals", pair)
        return diagnose(OPTIONS, PROMPTS, **more)

    return run


def suspects(found: Diagnosis) -> list[str]:
    return [check.name for check in found.suspects]


def words(found: Diagnosis, name: str) -> str:
    return next(check.words for check in found.checks if check.name == name)


GOOD = {(2, True): 3, (2, False): 3}


def test_a_good_pair_is_not_suspected(examined: Any) -> None:
    found = examined(Pair(GOOD))
    assert suspects(found) == []
    assert [check.name for check in found.checks] == [
        *("pairing", "layer ids", "mask token", "embedding scale", "thinking", "acceptance")
    ]
    assert found.speculation.mean_accepted == 4.0
    assert words(found, "layer ids") == "2, 4: 4.00 tokens a pass; -1: 1.10; +1: 1.10"
    assert found.template == "the model's own"
    assert found.example == "<user>Sort.{'enable_thinking': None}"


@pytest.mark.parametrize("by", [-1, 1])
def test_layer_ids_off_by_one(examined: Any, by: int) -> None:
    found = examined(Pair({(2 + by, True): 3}))
    assert suspects(found) == ["layer ids", "acceptance"]
    assert f"{by:+d}: 4.00" in words(found, "layer ids")
    assert "hardly fits" in words(found, "acceptance")


def test_ids_are_not_moved_out_of_the_model(examined: Any) -> None:
    pair = Pair(GOOD, layers=5)
    assert "+1" not in words(examined(pair), "layer ids")
    assert {tap for tap, *_ in pair.asked} == {1, 2}


class TestMaskToken:
    def test_a_mask_that_is_text(self, examined: Any) -> None:
        found = examined(Pair(GOOD, keys={"tokenizer.ggml.mask_token_id": 1}))
        assert suspects(found) == ["mask token"]
        assert words(found, "mask token") == (
            "1 'the': 4.00 tokens a pass; 2 '<|mask|>': 1.10; it is ordinary text"
        )

    def test_another_one_would_be_better(self, examined: Any) -> None:
        accepted = GOOD | {(102, True): 5}
        found = examined(Pair(accepted, keys={"tokenizer.ggml.mask_token_id": 0}))
        assert suspects(found) == ["mask token"]
        assert "2 '<|mask|>': 6.00; the draft was made with another" in words(found, "mask token")

    def test_one_that_is_named_otherwise_but_is_right(self, examined: Any) -> None:
        found = examined(Pair(GOOD, keys={"tokenizer.ggml.mask_token_id": 0}))
        assert suspects(found) == []


class TestThinking:
    def test_off_would_be_better(self, examined: Any) -> None:
        found = examined(Pair({(2, True): 1, (2, False): 4}, thinks=True))
        assert suspects(found) == ["thinking"]
        assert words(found, "thinking") == "on 2.00, off 5.00 tokens a pass; use --reasoning off"
        assert found.template == "the model's own, thinking on"

    def test_it_is_off_already(self, examined: Any) -> None:
        pair = Pair({(2, True): 1, (2, False): 4}, thinks=True)
        found = examined(pair, thinking=False)
        assert suspects(found) == []
        assert found.template == "the model's own, thinking off"
        assert found.speculation.mean_accepted == 5.0

    def test_on_would_be_better(self, examined: Any) -> None:
        found = examined(Pair({(2, True): 4, (2, False): 1}, thinks=True), thinking=False)
        assert words(found, "thinking").endswith("use --reasoning on")

    def test_without_thoughts_it_is_not_tried(self, examined: Any) -> None:
        pair = Pair(GOOD)
        examined(pair)
        assert {thinking for _, thinking, _ in pair.asked} == {True}


@pytest.mark.parametrize(
    ("scale", "keys", "names", "suspected"),
    [
        (8.0, {}, set(), True),
        (8.0, {"dflash.embedding_scale": 8.0}, set(), False),
        (1.0, {}, set(), False),
        (8.0, {}, {"token_embd.weight"}, False),
    ],
)
def test_a_missing_embedding_scale(
    examined: Any, scale: float, keys: Any, names: set[str], suspected: bool
) -> None:
    found = examined(Pair(GOOD, embedding_scale=scale, keys=keys, names=names))
    assert suspects(found) == ["embedding scale"] * suspected


def test_every_draft_is_verified_whole_and_really(examined: Any) -> None:
    pair = Pair(GOOD)
    examined(pair)
    [options] = pair.loaded_with
    assert options.spec is not None
    assert (options.spec.width, options.spec.tree, options.spec.synth_rates) == (256, 0, ())
    assert all(say.sample.temp == 0 for *_, say in pair.asked)


@pytest.mark.parametrize("spec", [None, SpecOptions(types=("ngram-mod",))])
def test_without_a_draft_there_is_nothing_to_look_at(spec: SpecOptions | None) -> None:
    with pytest.raises(BadUsage, match="no draft"):
        diagnose(LoadOptions(Path("target.gguf"), spec=spec), PROMPTS)
