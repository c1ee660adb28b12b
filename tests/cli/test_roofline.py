"""`turbodflash plan --roofline`: what is printed, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.fake import Program
from tests.golden_files import unpacked


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model and a draft for it."""
    folder = tmp_path_factory.mktemp("models")
    return unpacked("tiny-qwen3", folder), unpacked("tiny-dflash--qwen3", folder)


def test_published_runs_stand_beside_what_is_predicted(program: Program) -> None:
    result = program("plan", "--roofline", "--gpu", "rtx5090")
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert lines[0].startswith("Predictions for RTX 5090")
    assert "nothing was measured" in lines[0]
    assert "is an assumption" in lines[1]
    dense = [line for line in lines if "Qwen3.6-27B UD-Q5_K_XL 64000 q8_0/q8_0 (v1)" in line]
    assert len(dense) == 2
    assert "(63.5)" in dense[0]
    assert "(164.8)" in dense[0]
    assert "(203.3)" in dense[1]
    assert sum("Gemma4-31B" in line for line in lines) == 2 * 6


def test_a_file_is_predicted_with_its_draft(program: Program, tiny: tuple[Path, Path]) -> None:
    model, draft = map(str, tiny)
    words = ("plan", "-m", model, "-md", draft, "--roofline", "--gpu", "h200")
    result = program(*words, "--spec-synth-len", "5")
    assert (result.code, result.err) == (0, "")
    assert "Predictions for H200 SXM" in result.out
    assert "with the draft" in result.out
    assert result.out.endswith("The draft is taken to bring 5 tokens a step.\n")


def test_json_has_the_passes_behind_the_figures(program: Program, tiny: tuple[Path, Path]) -> None:
    runs = json.loads(program("plan", "--roofline", "--gpu", "a100", "--json").out)
    assert {each["gpu"] for each in runs} == {"A100 80 GB"}
    assert set(runs[0]["here"]["step"]) == {"nbytes", "operations", "launches", "seconds"}
    assert runs[0]["run"]["decode_on"] == 340.6
    words = ("plan", "-m", str(tiny[0]), "--roofline", "--gpu", "a100", "--json")
    one = json.loads(program(*words).out)
    assert one["depths"]["0"]["decode_on"] is None


def test_a_card_must_be_named_and_known(program: Program) -> None:
    result = program("plan", "--roofline")
    assert result.code == 2
    assert result.err.startswith("error: --roofline predicts for a card.\n")
    result = program("plan", "--roofline", "--gpu", "rtx5091")
    assert (result.code, result.err) == (
        2,
        "error: no GPU named 'rtx5091'.\nhint: did you mean 'rtx5090'?\n",
    )


def test_a_plan_for_a_card_of_that_kind(program: Program, tiny: tuple[Path, Path]) -> None:
    result = program("plan", "-m", str(tiny[0]), "--gpu", "rtx3090", "--device", "reference")
    assert result.code == 0
    assert "RTX 3090, " in result.out
    assert "GPU memory:" in result.out
    assert "23.0 GiB" in result.out
