"""The same numbers as the recorded ones, on every device."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.engine.tiny_models import TARGETS, build, golden, tiny
from tests.golden_files import GOLDEN, golden_models
from tests.kernels.devices import PRESENT
from turbodflash_engine.gguf import open_gguf
from turbodflash_engine.models._base import Model
from turbodflash_kernels.device import open_device

ON_EVERY_DEVICE = [(name, device) for name in TARGETS for device in PRESENT]
every_model_and_device = pytest.mark.parametrize(("name", "device"), ON_EVERY_DEVICE)

QUANTISED = sorted(
    match.groups()
    for path in golden_models()
    if (match := re.fullmatch(r"tiny-(.+)-(i?q\d\w+)\.gguf\.xz", path.name))
    and golden(f"{match.group(1)}-quant")
)

OTHERS = sorted(
    name
    for name in (path.name.removeprefix("tiny-").split(".")[0] for path in golden_models())
    if f"{name}_exact" in golden("other-quant") and name.split("-")[0] in TARGETS
)


def worst(ours: NDArray[np.float32], recorded: NDArray[np.float32]) -> float:
    return float(np.abs(ours - recorded).max())


def all_logits(model: Model, tokens: NDArray[np.int32]) -> NDArray[np.float32]:
    return model([int(token) for token in tokens], logits=len(tokens)).logits.copy()


@every_model_and_device
def test_a_prompt_has_the_recorded_logits(name: str, device: str) -> None:
    recorded = golden(name)
    logits = all_logits(tiny(name, open_device(device)), recorded["tokens"])
    assert worst(logits, recorded["logits"]) <= recorded["atol"]
    assert logits[-1].argmax() == recorded["greedy_tokens"][0]


@every_model_and_device
def test_a_long_prompt_has_the_recorded_logits(name: str, device: str) -> None:
    recorded = golden(name)
    logits = all_logits(tiny(name, open_device(device)), recorded["long_tokens"])
    assert worst(logits[-32:], recorded["long_logits_last32"]) <= recorded["atol"]
    np.testing.assert_array_equal(logits.argmax(axis=1), recorded["long_argmax"])


@every_model_and_device
def test_steps_have_the_recorded_logits(name: str, device: str) -> None:
    recorded = golden(name)
    model = tiny(name, open_device(device))
    model([int(token) for token in recorded["tokens"]])
    for step, token in enumerate(recorded["greedy_tokens"][:-1]):
        logits = model([int(token)]).logits[0]
        assert worst(logits, recorded["decode_logits"][step]) <= recorded["atol"]
        assert logits.argmax() == recorded["greedy_tokens"][step + 1]


@every_model_and_device
def test_taps_have_the_recorded_residual_stream(name: str, device: str) -> None:
    recorded, opened = golden(name), open_device(device)
    model, layers = tiny(name, opened), len(recorded["layer_inputs"])
    last_to_first = tuple(reversed(range(layers)))
    taps = model([int(token) for token in recorded["tokens"]], taps=last_to_first).taps
    for layer, tap in zip(last_to_first, taps, strict=True):
        assert worst(opened.read(tap), recorded["layer_inputs"][layer]) <= recorded["atol"]


@pytest.mark.parametrize(("family", "kind"), QUANTISED)
@pytest.mark.parametrize("device", PRESENT)
def test_quantised_models_are_as_close_as_promised(device: str, family: str, kind: str) -> None:
    """A device that rounds activations may be as far off as the field's usual program is."""
    recorded = golden(f"{family}-quant")
    logits = all_logits(tiny(f"{family}-{kind}", open_device(device)), recorded["tokens"])
    allowed = 1e-4 if device == "reference" else recorded[f"{kind}_stock_vs_exact"]
    assert worst(logits[-24:], recorded[f"{kind}_exact_last24"]) <= allowed


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("device", PRESENT)
def test_other_quantised_models_are_as_close_as_promised(device: str, name: str) -> None:
    """Where rounded activations make a router choose another expert, a row is off by what the two
    experts differ in, for the field's usual program, too, and by what rows are off anyway."""
    recorded = golden("other-quant")
    logits = all_logits(tiny(name, open_device(device)), recorded[f"{name}_tokens"])
    error = np.abs(logits[-24:] - recorded[f"{name}_exact"][-24:]).max(axis=1)
    allowed = 1e-4 if device == "reference" else recorded[f"{name}_stock_vs_exact"]
    usual = np.median(error)
    assert error.max() <= allowed + (usual if "moe" in name else 0)
    assert usual <= allowed / 2


class Real(NamedTuple):
    """A real model. promised: by device, by which share perplexity may differ, how often the best
    token must agree, and how many tokens are read: plain numpy takes long.
    """

    recorded: str
    file: str
    promised: dict[str, tuple[float, float, int]]


REAL = {
    "TURBODFLASH_TEST_MODEL": Real(
        "smollm2.npz",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        {"reference": (0.001, 1.0, 160), "cpu": (0.0075, 0.98, 461)},
    ),
    "TURBODFLASH_TEST_GEMMA": Real(
        "gemma3-270m.npz",
        "gemma-3-270m-q4_k_m.gguf",
        {"reference": (0.001, 1.0, 64), "cpu": (0.0057, 0.97, 468)},
    ),
}
"""By the variable that names the file, if it is not where the command line keeps models."""


def real_models() -> list[tuple[Real, Path]]:
    """Those that are there."""
    caches = [os.environ.get("TURBODFLASH_CACHE"), os.environ.get("XDG_CACHE_HOME")]
    roots = [caches[0] or "", f"{caches[1] or Path.home() / '.cache'}/turbodflash"]
    found = []
    for variable, real in REAL.items():
        kept = [Path(root) / "models" / real.file for root in roots if root]
        named = [Path(path) for path in [os.environ.get(variable)] if path]
        found += [(real, path) for path in [*named, *kept] if path.is_file()][:1]
    return found


with_a_real_model = pytest.mark.parametrize(
    ("real", "path"), real_models(), ids=lambda value: getattr(value, "stem", "")
)


def opened_real(real: Real, path: Path, device: str) -> tuple[Model, dict[str, NDArray[Any]]]:
    with np.load(GOLDEN / "real" / real.recorded) as arrays:
        recorded = dict(arrays)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == str(recorded["model_sha256"])
    with open_gguf(path) as file:
        model = build(file.metadata, file.tensors, open_device(device), positions=512, kv="f16")
    return model, recorded


@with_a_real_model
@pytest.mark.parametrize("device", PRESENT)
def test_a_real_model_reads_a_real_text_as_recorded(device: str, real: Real, path: Path) -> None:
    model, recorded = opened_real(real, path, device)
    share, agreement, count = real.promised[device]
    tokens = recorded["tokens"][:count]
    logits = all_logits(model, tokens).astype(np.float64)

    largest = logits.max(axis=1)
    normaliser = largest + np.log(np.exp(logits - largest[:, None]).sum(axis=1))
    ours = normaliser[:-1] - logits[np.arange(count - 1), tokens[1:]]
    exact = (recorded["exact_logsumexp"][:-1] - recorded["exact_next_token_logits"])[: count - 1]
    assert abs(np.exp(ours.mean() - exact.mean()) - 1) <= share
    assert (logits.argmax(axis=1) == recorded["exact_best"][:count]).mean() >= agreement


@with_a_real_model
def test_a_real_model_says_what_was_recorded_wherever_it_is_sure(real: Real, path: Path) -> None:
    """Of every greedy answer, each next token whose logit was well above all others."""
    model, recorded = opened_real(real, path, "cpu")
    answers = [key.removesuffix("_said") for key in recorded if key.endswith("_said")]
    for answer in answers:
        prompt, said = recorded[f"{answer}_prompt"], recorded[f"{answer}_said"]
        model.cache.truncate(0)
        logits = all_logits(model, np.concatenate([prompt, said]))[len(prompt) - 1 : -1]
        sure = recorded[f"{answer}_margins"] > 1
        np.testing.assert_array_equal(logits.argmax(axis=1)[sure], said[sure])
    assert answers
