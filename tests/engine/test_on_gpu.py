"""Whole models on a GPU: recorded numbers, recorded drafts, and drafts that change no bit.

Kernels are interpreted here, so all of it is short.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tests.cli.fake import Stream
from tests.engine.spec_runs import read_prompt, runs, take_step, tiny_draft
from tests.engine.test_lossless import Silent, Vocabulary, returned
from tests.engine.tiny_models import golden, tiny
from tests.golden_files import unpacked
from tests.interpreter import improve
from tests.kernels.replaying import Again
from turbodflash_cli.app import main
from turbodflash_engine.decode import Drafting, Ending, decode, prefill
from turbodflash_engine.drafters._base import Drafter, NoDrafter
from turbodflash_engine.models._base import Model
from turbodflash_engine.options import SampleOptions, SpecOptions
from turbodflash_engine.sampling import Sampler
from turbodflash_kernels._gpu.device import FEW_ROWS, GpuDevice

STEPS = 2
FAMILIES = ("gemma3", "gemma4moe", "qwen35moe")  # with them every op and every kind of layer
BEGINNING = 2  # tokens of a first pass
LONG, SHORT = 0, 6  # which recorded run: after a prompt of two passes, after one of a few tokens
RUNS = [
    ("dflash--qwen3", LONG),
    *((pair, SHORT) for pair in ("dflash2--qwen3", "dspark--qwen3", "eagle3--qwen3")),
]
PROMPT = [7, 300, 301, 302]
SAMPLING = (SampleOptions(temp=0), SampleOptions(temp=0.8))

improve()


@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_a_model_has_the_recorded_numbers(name: str) -> None:
    recorded, device = golden(name), GpuDevice.open()
    model, atol = tiny(name, device), recorded["atol"]
    layers = tuple(range(len(recorded["layer_inputs"])))
    tokens = recorded["tokens"].tolist()
    assert len(tokens) > FEW_ROWS  # read as a prompt is
    output = model(tokens, len(tokens), layers)
    np.testing.assert_allclose(output.logits, recorded["logits"], rtol=0, atol=atol)
    for tap, expected in zip(output.taps, recorded["layer_inputs"], strict=True):
        np.testing.assert_allclose(device.read(tap), expected, rtol=0, atol=atol)

    said = recorded["greedy_tokens"].tolist()
    for step in range(STEPS):
        output = model([said[step]])
        largest = output.largest(1, model.vocabulary)
        assert largest is not None
        assert largest.ids.tolist() == [[said[step + 1]]]
        expected = recorded["decode_logits"][step]
        np.testing.assert_allclose(output.logits[0], expected, rtol=0, atol=atol)


@pytest.mark.parametrize("name", FAMILIES)
def test_so_have_models_of_other_layers_for_a_few_tokens(name: str) -> None:
    recorded, device = golden(name), GpuDevice.open()
    device.record = again = Again()
    model, tokens = tiny(name, device), recorded["tokens"].tolist()
    logits = [model(tokens[:BEGINNING], BEGINNING).logits]
    for at in range(BEGINNING, BEGINNING + 2):  # launched one by one, then recorded
        logits.append(model(tokens[at : at + 1]).logits.copy())
    found = np.concatenate(logits)
    expected = recorded["logits"][: len(found)]
    np.testing.assert_allclose(found, expected, rtol=0, atol=recorded["atol"])
    assert again.recorded


@pytest.mark.parametrize(("pair", "number"), RUNS)
def test_drafts_are_those_recorded(pair: str, number: int) -> None:
    run, device = runs(pair)[number], GpuDevice.open()
    target = tiny("qwen3", device)
    options = SpecOptions(n_max=run["n_max"], p_min=run["p_min"])
    drafter = tiny_draft(pair, target, device, options)
    text = list(run["prompt"])
    read_prompt(target, drafter, text, chunk=FEW_ROWS)
    for step in run["steps"][:STEPS]:
        taken = take_step(target, drafter, text, run["n_max"])
        assert taken == (step["pos"], tuple(step["draft"]), step["n_accepted"])


@cache
def target() -> tuple[GpuDevice, Again, Model]:
    """Its steps are recorded, as on a card."""
    device = GpuDevice.open()
    device.record = again = Again()
    return device, again, tiny("qwen3", device)


@pytest.mark.parametrize("sample", SAMPLING, ids=("greedy", "sampled"))
def test_drafting_changes_no_bit(sample: SampleOptions) -> None:
    device, again, model = target()
    options = SpecOptions(width=3, n_max=3)
    drafter = tiny_draft("dflash2--qwen3", model, device, options)
    plain = told(model, NoDrafter(), sample, SpecOptions())
    assert told(model, drafter, sample, options) == plain
    assert again.recorded


def told(
    model: Model, drafter: Drafter, sample: SampleOptions, options: SpecOptions
) -> tuple[list[int], bytes]:
    """A short answer, and the bits of the logits after it."""
    model.cache.truncate(0)
    history, sampler = list(PROMPT), Sampler(sample, Vocabulary(), 1)
    seen = returned(prefill(model, drafter, PROMPT, 4, sampler.look))
    ending = Ending(Silent(), eog=(), left=4, limit="length")
    for _ in decode(model, Drafting(drafter, options), sampler, ending, history, seen):
        pass
    return history, model(history[-1:]).logits.tobytes()


def test_the_program_says_the_same_as_on_the_cpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr("sys.stdin", Stream(tty=True))
    model = str(unpacked("tiny-qwen3", tmp_path))
    said = []
    for device in ("cpu", "gpu"):
        asked = ["-m", model, "-dev", device, "-c", "64", "--temp", "0", "-n", "5"]
        code = main([*asked, "-no-cnv", "-p", "Once upon a time"])
        out, err = capsys.readouterr()
        assert code == 0, err
        said.append(out)
    assert said[0] == said[1]
