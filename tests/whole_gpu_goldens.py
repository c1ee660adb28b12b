"""All recorded numbers of whole models, from a GPU's kernels in the interpreter. It takes hours.

`make test` runs a part of each (`engine/test_on_gpu.py`); `make test-gpu` runs all of this.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from tests.engine.block_drafts import Logits
from tests.engine.spec_runs import read_prompt, recorded, runs, take_step, tiny_draft
from tests.engine.tiny_models import TARGETS, golden, tiny
from tests.golden_files import GOLDEN
from tests.interpreter import improve
from turbodflash_engine.drafters._block.drafter import BlockDrafter
from turbodflash_engine.models._base import Model
from turbodflash_engine.options import SpecOptions
from turbodflash_kernels._gpu.device import GpuDevice

improve()

SPEC_ATOL = 2e-4  # as recorded
PAIRS = sorted(path.name.split(".")[0] for path in (GOLDEN / "spec").glob("*.json.xz"))
RUNS = [(pair, number) for pair in PAIRS for number in range(len(runs(pair)))]
CALLS = [
    (pair, run["prompt_name"], run["n_max"])
    for pair in PAIRS
    for run in runs(pair)
    if pair.startswith(("dflash-", "dspark-"))  # the others' are compared by what they draft
    and f"{run['prompt_name']}_n{run['n_max']}_call0" in recorded(pair)
    and run["p_min"] == 0
]


@cache
def model_of(name: str) -> tuple[Model, GpuDevice]:
    device = GpuDevice.open()
    return tiny(name, device), device


def unread(name: str) -> tuple[Model, GpuDevice]:
    model, device = model_of(name)
    model.cache.truncate(0)
    return model, device


@pytest.mark.parametrize("chunk", [7, 64])
@pytest.mark.parametrize("name", TARGETS)
def test_a_prompt_in_chunks_has_the_recorded_numbers(name: str, chunk: int) -> None:
    numbers, (model, device) = golden(name), unread(name)
    layers = tuple(range(len(numbers["layer_inputs"])))
    tokens, atol = numbers["tokens"].tolist(), numbers["atol"]
    for start in range(0, len(tokens), chunk):
        part = tokens[start : start + chunk]
        output, rows = model(part, len(part), layers), slice(start, start + len(part))
        np.testing.assert_allclose(output.logits, numbers["logits"][rows], rtol=0, atol=atol)
        for tap, expected in zip(output.taps, numbers["layer_inputs"], strict=True):
            np.testing.assert_allclose(device.read(tap), expected[rows], rtol=0, atol=atol)


@pytest.mark.parametrize("name", TARGETS)
def test_a_long_prompt_has_the_recorded_logits(name: str) -> None:
    numbers, (model, _) = golden(name), unread(name)
    logits = model(numbers["long_tokens"].tolist(), 160).logits
    expected = numbers["long_logits_last32"]
    np.testing.assert_allclose(logits[-32:], expected, rtol=0, atol=numbers["atol"])
    np.testing.assert_array_equal(logits.argmax(axis=1), numbers["long_argmax"])


@pytest.mark.parametrize("name", TARGETS)
def test_steps_have_the_recorded_logits(name: str) -> None:
    numbers, (model, _) = golden(name), unread(name)
    model(numbers["tokens"].tolist())
    for step, token in enumerate(numbers["greedy_tokens"][:-1].tolist()):
        logits, expected = model([token]).logits[0], numbers["decode_logits"][step]
        np.testing.assert_allclose(logits, expected, rtol=0, atol=numbers["atol"])


@pytest.mark.parametrize(("pair", "number"), RUNS)
def test_runs_are_those_recorded(pair: str, number: int) -> None:
    run, (model, device) = runs(pair)[number], unread(pair.split("--")[1])
    drafter = tiny_draft(pair, model, device, SpecOptions(n_max=run["n_max"], p_min=run["p_min"]))
    text = list(run["prompt"])
    read_prompt(model, drafter, text)
    for step in run["steps"]:
        taken = take_step(model, drafter, text, run["n_max"])
        assert taken == (step["pos"], tuple(step["draft"]), step["n_accepted"])
    assert text[len(run["prompt"]) :] == run["emitted"]


@pytest.mark.parametrize(("pair", "prompt", "n_max"), CALLS)
def test_drafts_have_the_recorded_logits(pair: str, prompt: str, n_max: int) -> None:
    model, device = unread(pair.split("--")[1])
    drafter = tiny_draft(pair, model, device, SpecOptions(n_max=n_max))
    assert isinstance(drafter, BlockDrafter)
    text = next(list(run["prompt"]) for run in runs(pair) if run["prompt_name"] == prompt)
    logits = Logits(drafter, device)
    read_prompt(model, drafter, text)
    found, expected = logits(text), recorded(pair)[f"{prompt}_n{drafter.longest}_call0"]
    np.testing.assert_allclose(found, expected[-drafter.longest :], rtol=0, atol=SPEC_ATOL)
