"""`turbodflash plan`: text, JSON, exit codes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import turbodflash_engine
from tests.cli.fake import Program
from turbodflash_engine.memory import Share
from turbodflash_engine.planner import Planned

MIB = 2**20
FITS = Planned(
    model="tiny.gguf",
    draft=None,
    device="cpu avx2, 2 threads",
    card=None,
    context=4096,
    trained_context=8192,
    cache_type_k="f16",
    cache_type_v="f16",
    layers=30,
    gpu_layers=0,
    shares=(
        Share("host", "model", "attention", 100 * MIB),
        Share("host", "model", "cache: all positions", 45 * MIB),
    ),
    free={"host": 1000 * MIB, "card": None},
    missing={"host": 0, "card": 0},
    largest_context=8192,
    changes=(),
    notes=("a sentence to read",),
)
TOO_LARGE = replace(
    FITS,
    draft="draft.gguf",
    card="RTX 5090",
    gpu_layers=31,
    shares=(*FITS.shares, Share("card", "draft", "mlp", 300 * MIB)),
    free={"host": None, "card": 200 * MIB},
    missing={"host": 0, "card": 100 * MIB},
    changes=("-ctk q8_0 -ctv q8_0", "-c 1024"),
    notes=(),
)


@pytest.fixture
def planned(program: Program, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is found, and then what was asked for."""
    state: list[Any] = [FITS]

    def plan_files(*asked: Any) -> Planned:
        state.extend(asked)
        return state[0]

    monkeypatch.setitem(vars(turbodflash_engine), "plan_files", plan_files)
    monkeypatch.setattr("turbodflash_cli.plan.find_model", lambda terminal, flags: flags.model)
    return state


def test_what_fits_is_a_table_and_a_verdict(program: Program, planned: list[Any]) -> None:
    result = program("plan", "-m", "tiny.gguf", "-c", "4k", "--fit", "off")
    assert result.code == 0
    assert result.err == "warning: a sentence to read\n"
    rows = [line.split("  ", 1) for line in result.out.splitlines()]
    assert ["context", "     4,096 tokens (trained: 8,192)"] in rows
    lines = [" ".join(line.split()) for line in result.out.splitlines()]
    assert "cache: all positions 45.0 MiB" in lines
    assert "together 145.0 MiB" in lines
    assert lines[-1] == "It fits; so does a context of up to 8,192 tokens."
    options = planned[1]
    assert (options.model, options.context, options.fit) == (Path("tiny.gguf"), 4096, False)


def test_what_does_not_fit_says_what_would_and_exits_with_1(
    program: Program, planned: list[Any]
) -> None:
    planned[0] = TOO_LARGE
    result = program("plan", "-m", "tiny.gguf")
    assert (result.code, result.err) == (1, "")
    assert "GPU           RTX 5090, 31 of 31 layers" in result.out.splitlines()
    assert "  draft: mlp  300.0 MiB" in result.out.splitlines()
    assert result.out.endswith(
        "It does not fit: 100.0 MiB of GPU memory too few.\n"
        "What would fit:\n"
        "  -ctk q8_0 -ctv q8_0\n"
        "  -c 1024\n"
    )


def test_where_nothing_helps_that_is_said(program: Program, planned: list[Any]) -> None:
    planned[0] = replace(TOO_LARGE, changes=())
    assert program("plan", "-m", "x").out.endswith(
        "Nothing but a smaller file of this model would fit.\n"
    )


def test_json_has_everything(program: Program, planned: list[Any]) -> None:
    record = json.loads(program("plan", "-m", "x", "--json").out)
    assert record["fits"] is True
    assert record["shares"][0] == {
        "place": "host",
        "owner": "model",
        "kind": "attention",
        "nbytes": 100 * MIB,
    }
    assert set(record) == {*FITS.__slots__, "fits"}


def test_fit_takes_on_or_off(program: Program, planned: list[Any]) -> None:
    result = program("plan", "-m", "x", "--fit", "maybe")
    assert (result.code, result.err.splitlines()[0]) == (
        2,
        "error: --fit takes on or off, not 'maybe'.",
    )
