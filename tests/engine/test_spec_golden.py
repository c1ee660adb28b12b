"""Drafts for targets of other families than the one most drafts are recorded with."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from tests.engine.block_drafts import Logits
from tests.engine.spec_runs import read_prompt, recorded, runs, take_step, tiny_draft
from tests.engine.tiny_models import tiny
from tests.golden_files import GOLDEN
from tests.kernels.devices import PRESENT
from turbodflash_engine.drafters._block.drafter import BlockDrafter
from turbodflash_engine.models._base import Model
from turbodflash_engine.options import SpecOptions
from turbodflash_kernels.device import Device, open_device

ATOL = 2e-4  # as recorded
FEW_STEPS = 4  # of a run, where plain numpy computes it
CALLS = (0, 3)

PAIRS = sorted(
    name
    for path in (GOLDEN / "spec").glob("*.json.xz")
    if not (name := path.name.split(".")[0]).endswith("--qwen3")
)
RUNS = [(pair, number) for pair in PAIRS for number in range(len(runs(pair)))]
PROMPTS = [
    (pair, run["prompt_name"])
    for pair in PAIRS
    for run in runs(pair)
    if pair.startswith(("dflash", "dspark"))  # others have no logits of whole blocks
    and f"{run['prompt_name']}_n{run['n_max']}_call0" in recorded(pair)
    and run["p_min"] == 0
]


@cache
def _model(target: str, name: str) -> tuple[Model, Device]:
    device = open_device(name)
    return tiny(target, device), device


def target_of(pair: str, device: str) -> tuple[Model, Device]:
    """The model of a pair, that has read nothing."""
    model, opened = _model(pair.split("--")[1], device)
    model.cache.truncate(0)
    return model, opened


@pytest.mark.parametrize("device", PRESENT)
@pytest.mark.parametrize(("pair", "number"), RUNS)
def test_runs_are_those_recorded(pair: str, number: int, device: str) -> None:
    run = runs(pair)[number]
    model, opened = target_of(pair, device)
    drafter = tiny_draft(pair, model, opened, SpecOptions(n_max=run["n_max"], p_min=run["p_min"]))
    text = list(run["prompt"])
    read_prompt(model, drafter, text)
    steps = run["steps"][: FEW_STEPS if device == "reference" else None]
    for step in steps:
        taken = take_step(model, drafter, text, run["n_max"])
        assert taken == (step["pos"], tuple(step["draft"]), step["n_accepted"])
    emitted = text[len(run["prompt"]) :]
    assert emitted == run["emitted"][: len(emitted)]
    assert len(steps) < len(run["steps"]) or emitted == run["emitted"]


@pytest.mark.parametrize("device", PRESENT)
@pytest.mark.parametrize(("pair", "prompt"), PROMPTS)
def test_logits_are_those_recorded(pair: str, prompt: str, device: str) -> None:
    model, opened = target_of(pair, device)
    drafter = tiny_draft(pair, model, opened)
    assert isinstance(drafter, BlockDrafter)
    logits = Logits(drafter, opened)
    [text] = [list(run["prompt"]) for run in runs(pair) if run["prompt_name"] == prompt][:1]
    read_prompt(model, drafter, text)
    for call in range(CALLS[-1] + 1):
        if call in CALLS:
            expected = recorded(pair)[f"{prompt}_n{drafter.longest}_call{call}"]
            np.testing.assert_allclose(
                logits(text), expected[-drafter.longest :], rtol=0, atol=ATOL
            )
        take_step(model, drafter, text, drafter.longest)
