"""Drafts for targets with recurrent layers are those recorded, and so is what is accepted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.engine.block_drafts import Logits
from tests.engine.spec_runs import Step, read_prompt, recorded, runs, take_step, tiny_draft
from tests.engine.tiny_models import tiny
from turbodflash_engine.drafters._block.drafter import BlockDrafter
from turbodflash_engine.drafters.eagle3 import Eagle3
from turbodflash_engine.models._base import Model
from turbodflash_engine.options import SpecOptions
from turbodflash_kernels.device import Device, open_device

EAGLE = "eagle3--qwen35"
PAIRS = ("dflash--qwen35", "dflash--qwen35moe", EAGLE)
ATOL = 2e-4  # as recorded
CALLS = (0, 3)


def target_of(pair: str, device: Device) -> Model:
    return tiny(pair.split("--")[1], device)


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize(
    ("name", "number"), [*(("cpu", number) for number in range(9)), ("reference", 7)]
)
def test_runs_are_those_recorded(pair: str, name: str, number: int) -> None:
    device, run = open_device(name), runs(pair)[number]
    target = target_of(pair, device)
    options = SpecOptions(n_max=run["n_max"], p_min=run["p_min"])
    drafter = tiny_draft(pair, target, device, options)
    text = list(run["prompt"])
    read_prompt(target, drafter, text)
    for step in run["steps"]:
        taken = take_step(target, drafter, text, run["n_max"])
        assert taken == Step(step["pos"], tuple(step["draft"]), step["n_accepted"])
    assert text[len(run["prompt"]) :] == run["emitted"]


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("name", ["cpu", "reference"])
@pytest.mark.parametrize("prompt", ["A", "B", "C"])
def test_logits_are_those_recorded(
    prompt: str, name: str, pair: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = open_device(name)
    target = target_of(pair, device)
    drafter = tiny_draft(pair, target, device, SpecOptions(n_max=5 if pair == EAGLE else None))
    seen = last_rows(drafter, device, monkeypatch)
    text = next(list(run["prompt"]) for run in runs(pair) if run["prompt_name"] == prompt)
    read_prompt(target, drafter, text)
    for call in range(CALLS[-1] + 1):
        if call in CALLS:
            expected = recorded(pair)[f"{prompt}_n{drafter.longest}_call{call}"]
            found = seen(text)
            np.testing.assert_allclose(found, expected[-len(found) :], rtol=0, atol=ATOL)
        take_step(target, drafter, text, drafter.longest)


def last_rows(drafter: Any, device: Device, monkeypatch: pytest.MonkeyPatch) -> Any:
    """text -> the logits that a draft after it is chosen from: of EAGLE-3 those of its last row."""
    if isinstance(drafter, BlockDrafter):
        return Logits(drafter, device)
    assert isinstance(drafter, Eagle3)
    rows: list[NDArray[np.float32]] = []
    choose = drafter._chosen

    def chosen(chain: Any, row: Any) -> int | None:
        rows.append(device.read(drafter._head.logits(row.feature))[0].copy())
        return choose(chain, row)

    def drafted(text: list[int]) -> NDArray[np.float32]:
        drafter.draft(text, drafter.longest)
        return rows[-1][None]

    monkeypatch.setattr(drafter, "_chosen", chosen)
    return drafted
