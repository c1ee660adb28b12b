"""Each known cause of low acceptance is found where it is, and only there."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.engine.toy import ScriptedDrafter
from turbodflash_engine import doctor
from turbodflash_engine.doctor import Diagnosis, diagnose
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
            info=SimpleNamespace(has_template=True),
            drafter=ScriptedDrafter(lambda at, width: (), taps=(2, 4)),
        )

    def open_draft(self, spec: SpecOptions, told: Any) -> Any:
        file = OpenFile(self.metadata)
        return SimpleNamespace(
            file=file, config=read_block(self.metadata), tensors=self.names, type="draft-dflash"
        )

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


@pytest.fixture
def examine(monkeypatch: pytest.MonkeyPatch) -> Any:
    def run(pair: Pair, **more: Any) -> Diagnosis:
        monkeypatch.setattr(doctor, "load", pair.load)
        monkeypatch.setattr(doctor, "Rivals", pair)
        monkeypatch.setattr(doctor, "open_draft", pair.open_draft)
        return diagnose(OPTIONS, PROMPTS, **more)

    return run


def suspects(found: Diagnosis) -> list[str]:
    return [check.name for check in found.suspects]


def words(found: Diagnosis, name: str) -> str:
    return next(check.words for check in found.checks if check.name == name)


GOOD = {(2, True): 3, (2, False): 3}


def test_a_good_pair_is_not_suspected(examine: Any) -> None:
    found = examine(Pair(GOOD))
    assert suspects(found) == []
    assert [check.name for check in found.checks] == [
        *("pairing", "layer ids", "mask token", "embedding scale", "thinking", "acceptance")
    ]
    assert found.speculation.mean_accepted == 4.0
    assert words(found, "layer ids") == "2, 4: 4.00 tokens a pass; -1: 1.10; +1: 1.10"
    assert found.template == "the model's own"
    assert found.example == "<user>Sort.{'enable_thinking': None}"


@pytest.mark.parametrize("by", [-1, 1])
def test_layer_ids_off_by_one(examine: Any, by: int) -> None:
    found = examine(Pair({(2 + by, True): 3}))
    assert suspects(found) == ["layer ids", "acceptance"]
    assert f"{by:+d}: 4.00" in words(found, "layer ids")
    assert "hardly fits" in words(found, "acceptance")


def test_ids_are_not_moved_out_of_the_model(examine: Any) -> None:
    pair = Pair(GOOD, layers=5)
    assert "+1" not in words(examine(pair), "layer ids")
    assert {tap for tap, *_ in pair.asked} == {1, 2}


@pytest.mark.parametrize(("mask", "text", "suspected"), [(1, "the", True), (0, "<pad>", False)])
def test_a_mask_that_is_text(examine: Any, mask: int, text: str, suspected: bool) -> None:
    found = examine(Pair(GOOD, keys={"tokenizer.ggml.mask_token_id": mask}))
    assert suspects(found) == ["mask token"] * suspected
    assert words(found, "mask token").startswith(f"{mask} {text!r}")
    assert ("2 '<|mask|>'" in words(found, "mask token")) is suspected


class TestThinking:
    def test_off_would_be_better(self, examine: Any) -> None:
        found = examine(Pair({(2, True): 1, (2, False): 4}, thinks=True))
        assert suspects(found) == ["thinking"]
        assert words(found, "thinking") == "on 2.00, off 5.00 tokens a pass; use --reasoning off"
        assert found.template == "the model's own, thinking on"

    def test_it_is_off_already(self, examine: Any) -> None:
        pair = Pair({(2, True): 1, (2, False): 4}, thinks=True)
        found = examine(pair, thinking=False)
        assert suspects(found) == []
        assert found.template == "the model's own, thinking off"
        assert found.speculation.mean_accepted == 5.0

    def test_on_would_be_better(self, examine: Any) -> None:
        found = examine(Pair({(2, True): 4, (2, False): 1}, thinks=True), thinking=False)
        assert words(found, "thinking").endswith("use --reasoning on")

    def test_without_thoughts_it_is_not_tried(self, examine: Any) -> None:
        pair = Pair(GOOD)
        examine(pair)
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
    examine: Any, scale: float, keys: Any, names: set[str], suspected: bool
) -> None:
    found = examine(Pair(GOOD, embedding_scale=scale, keys=keys, names=names))
    assert suspects(found) == ["embedding scale"] * suspected


def test_every_draft_is_verified_whole_and_really(examine: Any) -> None:
    pair = Pair(GOOD)
    examine(pair)
    [options] = pair.loaded_with
    assert options.spec is not None
    assert (options.spec.width, options.spec.tree, options.spec.synth_rates) == (256, 0, ())
    assert all(say.sample.temp == 0 for *_, say in pair.asked)


@pytest.mark.parametrize("spec", [None, SpecOptions(types=("ngram-mod",))])
def test_without_a_draft_there_is_nothing_to_look_at(spec: SpecOptions | None) -> None:
    with pytest.raises(BadUsage, match="no draft"):
        diagnose(LoadOptions(Path("target.gguf"), spec=spec), PROMPTS)
