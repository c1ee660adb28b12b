"""A model in parts on several devices says what it says on one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.engine.spec_runs import draft_for, read_prompt, runs, take_step
from tests.engine.tiny_models import golden, path_of, tensors_of, tiny
from turbodflash_engine import devices, plugins
from turbodflash_engine.devices import Choice, Devices, choose
from turbodflash_engine.drafters._across import Across, across
from turbodflash_engine.drafters._first import parts_of
from turbodflash_engine.errors import BadUsage, DoesNotFit, TurbodflashError
from turbodflash_engine.loading import Loaded, load
from turbodflash_engine.models._base import Model
from turbodflash_engine.models._placement import Placement, Run
from turbodflash_engine.options import EVERY_LAYER, LoadOptions, SpecOptions
from turbodflash_kernels import cards
from turbodflash_kernels._reference import ReferenceDevice
from turbodflash_kernels.cards import FoundCard
from turbodflash_kernels.device import Device, open_device
from turbodflash_kernels.errors import NoDevice, NoKernel, NoRoom

MODELS = plugins.names("models")
LAYERS = {name: len(golden(name)["layer_inputs"]) for name in MODELS}
TREE = [-1, 0, 0, 1, 1, 2]
SPLITS = [(name, on_card) for name in MODELS for on_card in range(LAYERS[name] + 2)]


@cache
def device(name: str) -> Device:
    """The devices whose pairs are tried; "other" is a second reference, with its own memory."""
    return ReferenceDevice() if name == "other" else open_device(name, 2)


PAIRS = [("cpu", "reference"), ("reference", "cpu")]


def divided(host: str, card: str, name: str, on_card: int) -> Placement:
    return Placement.split(device(host), device(card), LAYERS[name], on_card)


def prompt(name: str) -> list[int]:
    return [int(token) for token in golden(name)["tokens"]]


def all_of(model: Model, read: Callable[[int, Any], Any], tokens: list[int]) -> list[Any]:
    """Logits of a prompt, a step and a tree, and the taps of the tree."""
    found = [model(tokens, logits=3).logits.copy(), model([7]).logits.copy()]
    layers = tuple(range(model.shared.layers))
    with model.cache.trial() as trial:
        output = model([1, 2, 3, 4, 5, 6], 6, layers, TREE)
        taps = [read(layer, tap).copy() for layer, tap in zip(layers, output.taps, strict=True)]
        found += [output.logits.copy(), *taps]
        trial.keep_path([0, 2, 5])
    return [*found, model([8, 9], logits=2).logits.copy()]


def greedy(model: Model, tokens: Sequence[int], count: int) -> list[int]:
    said = [int(model(tokens).logits[0].argmax())]
    while len(said) < count:
        said.append(int(model(said[-1:]).logits[0].argmax()))
    return said


@cache
def undivided(name: str) -> list[Any]:
    whole = tiny(name, device("reference"))
    return all_of(whole, lambda layer, tap: device("reference").read(tap), prompt(name))


@pytest.mark.parametrize(("name", "on_card"), SPLITS)
def test_rows_are_handed_on_to_the_bit(name: str, on_card: int) -> None:
    placement = divided("reference", "other", name, on_card)
    parts = tiny(name, placement)
    found = all_of(parts, lambda layer, tap: placement.layers[layer].read(tap), prompt(name))
    for mine, other in zip(found, undivided(name), strict=True):
        np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize(("name", "on_card"), SPLITS)
def test_a_split_model_says_what_is_recorded(name: str, on_card: int) -> None:
    """Every second split hands rows from a CPU to another device, the others hand them to a CPU."""
    expected = [int(token) for token in golden(name)["greedy_tokens"]]
    model = tiny(name, divided(*PAIRS[on_card % 2], name, on_card))
    assert greedy(model, prompt(name), len(expected)) == expected


def test_layers_leave_from_the_end_the_head_first() -> None:
    host, card = device("cpu"), device("reference")

    def run(on_card: int) -> list[Run]:
        return list(Placement.split(host, card, 3, on_card).runs())

    assert run(0) == [Run(host, range(3))]
    assert run(1) == [Run(host, range(3)), Run(card, range(3, 3))]
    assert run(3) == [Run(host, range(1)), Run(card, range(1, 3))]
    assert run(4) == run(99) == [Run(card, range(3))]


def test_keys_and_values_lie_beside_their_layer() -> None:
    model = tiny("llama", divided("cpu", "reference", "llama", 3))
    kinds = [type(layer.kv).__name__ for layer in model.cache.layers]
    assert kinds == ["CpuKV", "CpuKV", "ReferenceKV", "ReferenceKV"]


DRAFTS = ("dflash--qwen3", "dflash-swa-d2t--qwen3", "dspark--qwen3", "eagle3--qwen3")


def drafts(pair: str, placement: Placement | Device, at: Device) -> list[Any]:
    model = tiny("qwen3", placement)
    drafter = across(draft_for(model, at, tensors_of(pair)), at, model.shared)
    text = list(runs(pair)[0]["prompt"])
    read_prompt(model, drafter, text, chunk=16)
    return [take_step(model, drafter, text, 8) for _ in range(4)]


@cache
def drafts_of_one_device(pair: str) -> list[Any]:
    return drafts(pair, device("reference"), device("reference"))


@pytest.mark.parametrize("draft_on", ["reference", "other"])
@pytest.mark.parametrize("on_card", [0, 2, 4, 7])
@pytest.mark.parametrize("pair", DRAFTS)
def test_a_draft_sees_rows_of_other_devices(pair: str, on_card: int, draft_on: str) -> None:
    """Two references round alike, so every draft is that of one device."""
    placement = divided("reference", "other", "qwen3", on_card)
    assert drafts(pair, placement, device(draft_on)) == drafts_of_one_device(pair)


def test_a_draft_beside_all_its_rows_is_left_as_it_is() -> None:
    model = tiny("qwen3", divided("reference", "other", "qwen3", 3))
    drafter = draft_for(model, device("reference"), tensors_of("dflash--qwen3"))
    assert isinstance(across(drafter, device("reference"), model.shared), Across)
    whole = tiny("qwen3", device("reference"))
    assert across(drafter, device("reference"), whole.shared) is drafter


def test_a_table_is_packed_once_on_each_device() -> None:
    model = tiny("qwen3", divided("reference", "other", "qwen3", 3))
    embedding = model.shared.embedding
    assert embedding.on(device("reference")) is embedding.on(device("reference"))
    assert embedding.on(device("other")) is not embedding.on(device("reference"))


def loaded(name: str = "qwen3", **changes: Any) -> Loaded:
    given = {
        "context": 256,
        "warmup": False,
        "ubatch": 16,
        "cache_type_k": "f32",
        "cache_type_v": "f32",
    }
    return load(LoadOptions(path_of(name), **given | changes))


@pytest.mark.parametrize(
    ("changes", "described"),
    [
        ({"device": "reference"}, "reference float32"),
        ({"device": "reference", "gpu_layers": EVERY_LAYER}, "reference float32"),
        ({"device": "reference", "gpu_layers": 1}, "6 layers; reference float32: the head"),
        (
            {"device": "reference", "gpu_layers": 3},
            "4 layers; reference float32: 2 layers and the head",
        ),
        ({"device": "reference", "gpu_layers": 6}, "1 layer; reference float32: 5 layers and the"),
    ],
)
def test_layers_go_where_they_are_asked_to_go(changes: dict[str, Any], described: str) -> None:
    found = loaded(**changes)
    expected = [int(token) for token in golden("qwen3")["greedy_tokens"]]
    assert described in found.info.device
    assert greedy(found.model, prompt("qwen3"), len(expected)) == expected


def test_no_layer_leaves_the_cpu_when_none_is_asked_to() -> None:
    for changes in ({"device": "reference", "gpu_layers": 0}, {"device": "cpu"}, {}):
        assert loaded(threads=2, **changes).info.device.startswith("cpu ")


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ({}, "reference"),
        ({"gpu_layers": 0}, "cpu"),
        ({"gpu_layers": 99}, "reference"),
        ({"device": "cpu"}, "cpu"),
        ({"device": "reference"}, "reference"),
    ],
)
def test_a_draft_is_with_the_head_or_where_it_is_asked_to_be(
    spec: dict[str, Any], name: str
) -> None:
    options = SpecOptions(model=path_of("dflash--qwen3"), cache_type_k="f32", **spec)
    found = loaded(device="reference", gpu_layers=3, spec=options)
    assert found.device.name == "reference"
    assert found.drafts_on.name == name
    assert found.drafter is not None
    draft, _ = parts_of(found.drafter)
    assert isinstance(draft, Across)  # its taps are the inputs of layers on both devices


def on_a_card_of(nbytes: int, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> Loaded:
    """The model loaded where the reference has so much memory of its own."""
    monkeypatch.setattr(ReferenceDevice, "free_bytes", lambda self: nbytes)
    return loaded(device="reference", **changes)


def test_as_many_layers_go_to_a_card_as_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = on_a_card_of(1 << 30, monkeypatch)
    assert whole.info.device == "reference float32"
    assert whole.info.notes == ()
    part = on_a_card_of(1_000_000, monkeypatch)
    counts = [type(layer.kv).__name__ for layer in part.model.cache.layers]
    assert {"CpuKV", "ReferenceKV"} == set(counts)
    assert part.info.device.endswith(f"{counts.count('ReferenceKV')} layers and the head")
    assert "layers are on the GPU: more does not fit it" in part.info.notes[-1]
    assert on_a_card_of(1000, monkeypatch).info.device.startswith("cpu ")


def test_what_was_asked_for_and_does_not_fit_a_card_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(DoesNotFit, match="of the GPU's memory") as caught:
        on_a_card_of(1_000_000, monkeypatch, gpu_layers=EVERY_LAYER)
    fewer = int(caught.value.hint.partition("-ngl ")[2].split()[0])
    assert on_a_card_of(1_000_000, monkeypatch, gpu_layers=fewer).info.notes == ()
    with pytest.raises(DoesNotFit):
        on_a_card_of(1_000_000, monkeypatch, gpu_layers=fewer + 1)


class Other(ReferenceDevice):
    """Stands for a card."""


class TestAnyCard:
    """What becomes of layers where nobody said which device."""

    @pytest.fixture(autouse=True)
    def _cards(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found: tuple[FoundCard, ...] = ()
        self.opened: list[str] = []
        monkeypatch.setattr(devices, "cards", lambda: self.found)
        monkeypatch.setattr(devices, "interpreting", lambda: False)
        monkeypatch.setattr(devices, "open_device", self._open)
        monkeypatch.setattr(cards, "PACKAGES", ("math",))

    def _open(self, name: str, *settings: Any, **more: Any) -> Any:
        self.opened.append(name)
        if name.startswith("gpu") and not self.found:
            raise NoDevice("there is no card")
        return Other() if name.startswith("gpu") else ReferenceDevice()

    def chosen(self, **options: Any) -> Choice:
        asked = LoadOptions(path_of("llama"), **options)
        return choose(asked, Devices(asked, lambda kernel: None))

    def test_none_is_opened_without_one(self) -> None:
        assert self.chosen().card is None
        self.found = (FoundCard("old", 75, 1),)
        assert self.chosen().card is None
        assert self.opened == []

    def test_the_first_that_will_do_is_used(self) -> None:
        self.found = (FoundCard("old", 75, 1), FoundCard("new", 80, 1))
        assert self.chosen().card is not None
        assert self.opened == ["gpu:1"]
        assert self.chosen(gpu_layers=0).card is None
        assert self.chosen(device="cpu").card is None
        assert self.opened == ["gpu:1"]

    def test_one_that_fails_is_left_alone_unless_it_was_asked_for(self) -> None:
        with pytest.raises(NoDevice):
            self.chosen(gpu_layers=3)
        with pytest.raises(NoDevice):
            self.chosen(device="gpu:1")
        with pytest.raises(NoDevice):
            self.chosen(spec=SpecOptions(gpu_layers=1))
        assert self.opened == ["gpu:0", "gpu:1", "gpu:0"]

    @pytest.mark.parametrize("error", [NoKernel("no kernel for x():\n  gpu: no"), NoRoom("full")])
    def test_one_that_cannot_do_it_is_left_alone_unless_it_was_asked_for(
        self, error: TurbodflashError, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(self: Device, op: str, **static: Any) -> Any:
            raise error

        self.found = (FoundCard("new", 90, 1),)
        monkeypatch.setattr(Other, "bind", refuse)
        found = loaded()
        assert found.info.device == "reference float32"  # which stands for the CPU here
        assert found.info.notes == (f"the CPU computes, not the GPU: {str(error).split(':')[0]}",)
        with pytest.raises(type(error)):
            loaded(gpu_layers=EVERY_LAYER)

    def test_a_draft_may_have_it_alone(self) -> None:
        self.found = (FoundCard("new", 90, 1),)
        choice = self.chosen(gpu_layers=0, spec=SpecOptions(gpu_layers=EVERY_LAYER))
        assert choice.card is None
        assert choice.draft is not None
        assert self.opened == ["gpu:0"]


@pytest.mark.parametrize("name", ["cpu:1", "gpu:", "gpu:x", "tpu", "reference:0", ""])
def test_a_device_has_a_name_that_is_known(name: str) -> None:
    for options in (
        lambda: LoadOptions(path_of("llama"), device=name),
        lambda: SpecOptions(device=name),
    ):
        with pytest.raises(BadUsage, match="must be one of: auto, cpu, gpu, reference"):
            options()


def test_layers_cannot_be_on_a_card_and_on_the_cpu() -> None:
    for count, said in ((5, "5"), (EVERY_LAYER, "all")):
        with pytest.raises(BadUsage, match=f"{said} layers are asked for on a card, but the dev"):
            LoadOptions(path_of("llama"), device="cpu", gpu_layers=count)
        with pytest.raises(BadUsage, match="but the draft's device is the CPU"):
            SpecOptions(device="cpu", gpu_layers=count)


# --- a card, interpreted: few layers and tokens, because each takes seconds ----------------------


@pytest.mark.parametrize(("name", "on_card"), [("llama", 2), ("qwen3", 1)])
def test_layers_on_a_card_say_what_they_say_on_the_cpu(name: str, on_card: int) -> None:
    tokens = prompt(name)[:3]
    expected = greedy(tiny(name, device("cpu")), tokens, 3)
    assert greedy(tiny(name, divided("cpu", "gpu", name, on_card)), tokens, 3) == expected


@pytest.mark.parametrize(
    ("pair", "on_card", "draft_on"),
    [
        ("dflash--qwen3", 0, "gpu"),  # the draft alone is on the card
        ("eagle3--qwen3", 0, "gpu"),
        ("dflash--qwen3", 2, "cpu"),  # of its taps, the last layer's input is on the card
    ],
)
def test_a_draft_across_a_card_changes_no_text(pair: str, on_card: int, draft_on: str) -> None:
    model = tiny("qwen3", divided("cpu", "gpu", "qwen3", on_card))
    there = device(draft_on)
    drafter = across(draft_for(model, there, tensors_of(pair)), there, model.shared)
    assert isinstance(drafter, Across)
    text = prompt("qwen3")[:4]
    read_prompt(model, drafter, text)
    steps = [take_step(model, drafter, text, 2) for _ in range(2)]
    assert all(step.draft for step in steps)
    model.cache.truncate(0)
    assert greedy(model, prompt("qwen3")[:4], len(text) - 4) == text[4:]
