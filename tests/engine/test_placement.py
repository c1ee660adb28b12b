"""A model in parts on several devices says what it says on one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.engine.spec_runs import draft_for, read_prompt, runs, take_step
from tests.engine.tiny_models import golden, tensors_of, tiny
from turbodflash_engine import plugins
from turbodflash_engine.drafters._across import Across, across
from turbodflash_engine.models._base import Model
from turbodflash_engine.models._placement import Placement, Run
from turbodflash_kernels._reference import ReferenceDevice
from turbodflash_kernels.device import Device, open_device

LAYERS = {"llama": 4, "qwen3": 6}  # of the tiny models
MODELS = plugins.names("models")
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


@pytest.mark.parametrize(("name", "on_card"), SPLITS)
def test_rows_are_handed_on_to_the_bit(name: str, on_card: int) -> None:
    placement = divided("reference", "other", name, on_card)
    one, parts = tiny(name, device("reference")), tiny(name, placement)
    expected = all_of(one, lambda layer, tap: device("reference").read(tap), prompt(name))
    found = all_of(parts, lambda layer, tap: placement.layers[layer].read(tap), prompt(name))
    for mine, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize(("name", "on_card"), SPLITS)
@pytest.mark.parametrize(("host", "card"), PAIRS)
def test_a_split_model_says_what_is_recorded(name: str, host: str, card: str, on_card: int) -> None:
    expected = [int(token) for token in golden(name)["greedy_tokens"]]
    model = tiny(name, divided(host, card, name, on_card))
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


@pytest.mark.parametrize("draft_on", ["reference", "other"])
@pytest.mark.parametrize("on_card", [0, 2, 4, 7])
@pytest.mark.parametrize("pair", DRAFTS)
def test_a_draft_sees_rows_of_other_devices(pair: str, on_card: int, draft_on: str) -> None:
    """Two references round alike, so every draft is that of one device."""

    def drafts(placement: Placement | Device, at: Device) -> list[Any]:
        model = tiny("qwen3", placement)
        drafter = across(draft_for(model, at, tensors_of(pair)), at, model.shared)
        text = list(runs(pair)[0]["prompt"])
        read_prompt(model, drafter, text, chunk=16)
        return [take_step(model, drafter, text, 8) for _ in range(4)]

    there, alone = device(draft_on), device("reference")
    placement = divided("reference", "other", "qwen3", on_card)
    assert drafts(placement, there) == drafts(alone, alone)


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
