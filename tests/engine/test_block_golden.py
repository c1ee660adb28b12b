"""DFlash, DFlash2 and DSpark draft what was recorded, from the logits that were recorded."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.engine.block_drafts import PAIRS, SPARK, V2, Logits, built, spied
from tests.engine.spec_runs import read_prompt, recorded, runs, take_step
from turbodflash_engine.drafters.dflash import Dflash2
from turbodflash_engine.drafters.dspark import Dspark
from turbodflash_engine.models._base import Model
from turbodflash_kernels.device import Device

ATOL = 2e-4  # as recorded
PROMPTS = {run["prompt_name"]: run["prompt"] for run in runs(V2)}
FEW_STEPS = 4  # of a run, where plain numpy computes it
CALLS = (0, 3)


def all_runs() -> list[tuple[str, int]]:
    return [(pair, number) for pair in PAIRS for number in range(len(runs(pair)))]


@pytest.mark.parametrize(("pair", "number"), all_runs())
def test_runs_are_those_recorded(pair: str, number: int, target: Model, device: Device) -> None:
    run = runs(pair)[number]
    drafter = built(pair, target, device, n_max=run["n_max"], p_min=run["p_min"])
    text = list(run["prompt"])
    read_prompt(target, drafter, text)
    steps = run["steps"][: FEW_STEPS if device.name == "reference" else None]
    for step in steps:
        taken = take_step(target, drafter, text, run["n_max"])
        assert taken == (step["pos"], tuple(step["draft"]), step["n_accepted"])
    emitted = text[len(run["prompt"]) :]
    assert emitted == run["emitted"][: len(emitted)]
    assert len(steps) < len(run["steps"]) or emitted == run["emitted"]


@pytest.mark.parametrize("pair", [pair for pair in PAIRS if pair != V2])
@pytest.mark.parametrize("prompt", PROMPTS)
def test_logits_are_those_recorded(pair: str, prompt: str, target: Model, device: Device) -> None:
    drafter = built(pair, target, device)
    logits = Logits(drafter, device)
    text = list(PROMPTS[prompt])
    read_prompt(target, drafter, text)
    for call in range(CALLS[-1] + 1):
        if call in CALLS:
            expected = recorded(pair)[f"{prompt}_n{drafter.longest}_call{call}"]
            found = logits(text)
            np.testing.assert_allclose(found, expected[-drafter.longest :], rtol=0, atol=ATOL)
        take_step(target, drafter, text, drafter.longest)


@pytest.mark.parametrize("prompt", PROMPTS)
def test_confidence_is_that_recorded(prompt: str, target: Model, device: Device) -> None:
    drafter = built(SPARK, target, device, p_min=1e-9)
    assert isinstance(drafter, Dspark)
    text = PROMPTS[prompt]
    read_prompt(target, drafter, text)
    calls = spied(drafter, "_sure")
    drafter.draft(text, drafter.longest)
    sure = [1 / (1 + np.exp(-device.read(call.result)[0, 0])) for call in calls]
    expected = recorded(SPARK)[f"{prompt}_n8_call0_confidence"]
    np.testing.assert_allclose(sure, expected, rtol=0, atol=ATOL)


@pytest.mark.parametrize("prompt", PROMPTS)
def test_the_lattice_is_that_recorded(prompt: str, target: Model, device: Device) -> None:
    drafter = built(V2, target, device)
    assert isinstance(drafter, Dflash2)
    calls = spied(drafter._selection, "lattice")
    text = list(PROMPTS[prompt])
    read_prompt(target, drafter, text)
    for call in range(CALLS[-1] + 1):
        take_step(target, drafter, text, drafter.longest)
        if call in CALLS:
            (_, candidates, *_), scores = calls[-1]
            check_lattice(candidates, scores, recorded(V2)[f"{prompt}_n7_call{call}"][1:])


def check_lattice(
    candidates: NDArray[np.int32], scores: NDArray[np.float32], expected: NDArray[np.float32]
) -> None:
    """A recorded row: k tokens in any order, and k * k scores, those of a predecessor together."""
    top = candidates.shape[1]
    before = np.arange(top)
    for tokens, found, row in zip(candidates, scores, expected, strict=True):
        order = [tokens.tolist().index(int(token)) for token in row[:top]]
        wanted = row[top : top + top * top].reshape(top, top)
        np.testing.assert_allclose(found[np.ix_(before, order)], wanted, rtol=0, atol=ATOL)
        before = np.array(order)
