"""`turbodflash bench` and `turbodflash inspect`, and their exit codes."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

import turbodflash_engine
from tests.cli.fake import Program
from tests.golden_files import unpacked
from turbodflash_cli.inspect import ranges
from turbodflash_cli.table import columns

FIGURES = {
    "model": "tiny.gguf",
    "threads": 2,
    "isa": "avx2",
    "read_gbs": 21.5,
    "peak_gmacs": 412.25,
    "prompt_tps": 1203.75,
    "decode_tps": 250.8,
    "decode_tps_2048": 211.0,
    "decode_percent_of_read": 79.51,
    "ttft_s": 0.41,
}


@pytest.fixture
def measured(program: Program, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the bench was asked to measure."""
    asked: list[Any] = []

    def measure(options: Any, progress: Any = None) -> dict[str, Any]:
        asked.append(options)
        return FIGURES

    monkeypatch.setitem(vars(turbodflash_engine), "measure", measure)
    monkeypatch.setattr("turbodflash_cli.bench.find_model", lambda terminal, flags: flags.model)
    return asked


class TestBench:
    def test_a_table_with_units(self, program: Program, measured: list[Any]) -> None:
        result = program("bench", "-m", "tiny.gguf", "-t", "2")
        assert (result.code, result.err) == (0, "")
        lines = [line.split(maxsplit=2) for line in result.out.splitlines()]
        assert ["read", "gbs", "21.5 GB/s"] in lines
        assert ["prompt", "tps", "1204 t/s"] in lines
        assert ["ttft", "s", "0.41 s"] in lines
        assert "decode percent of read  79.51 % of the read bandwidth" in result.out
        assert (measured[0].model, measured[0].threads) == (Path("tiny.gguf"), 2)

    def test_json_has_the_figures_as_they_are(self, program: Program, measured: list[Any]) -> None:
        assert json.loads(program("bench", "-m", "x", "-o", "json").out) == FIGURES

    def test_csv_is_two_lines(self, program: Program, measured: list[Any]) -> None:
        text = program("bench", "-m", "x", "-o", "csv").out
        keys, values = csv.reader(io.StringIO(text))
        assert dict(zip(keys, values, strict=True)) == {k: str(v) for k, v in FIGURES.items()}
        assert text.startswith('"model","threads"')

    def test_markdown(self, program: Program, measured: list[Any]) -> None:
        lines = program("bench", "-m", "x", "-o", "md").out.splitlines()
        assert lines[1] == "| :--- | ---: |"
        assert "| read_gbs | 21.5 GB/s |" in lines
        assert len(lines) == 2 + len(FIGURES)

    def test_other_formats_are_refused(self, program: Program, measured: list[Any]) -> None:
        result = program("bench", "-m", "x", "-o", "sql")
        assert (result.code, measured) == (2, [])
        assert result.err == "error: -o takes table, md, json or csv, not 'sql'.\n"


class TestInspect:
    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        return unpacked("tiny-llama", tmp_path)

    def test_a_page(self, program: Program, file: Path) -> None:
        result = program("inspect", str(file))
        assert (result.code, result.err) == (0, "")
        for part in ("architecture  llama", "types:\n", "tokenizer:\n", "chat template:\n"):
            assert part in result.out
        assert "token_embd.weight" not in result.out

    def test_layers_stand_on_the_page_by_kind(self, program: Program, file: Path) -> None:
        lines = program("inspect", str(file)).out.splitlines()
        (layers,) = [lines[at + 1].split() for at, line in enumerate(lines) if line == "layers:"]
        assert layers[1:4] == ["layers", "attention,", "dense"]
        assert layers[-1] == f"(0-{int(layers[0]) - 1})"
        (parameters,) = [line.split() for line in lines if line.startswith("parameters")]
        assert parameters[3:] == ["active", "per", "token)"]
        assert int(parameters[2].strip("(").replace(",", "")) < int(parameters[1].replace(",", ""))

    def test_tensors_and_metadata_on_request(self, program: Program, file: Path) -> None:
        page = program("inspect", str(file), "--tensors", "--metadata").out
        assert "token_embd.weight" in page
        assert "llama.block_count" in page

    def test_json_has_everything(self, program: Program, file: Path) -> None:
        found = json.loads(program("inspect", str(file), "--json").out)
        assert found["architecture"] == "llama"
        assert found["metadata"]["llama.block_count"] > 0
        assert {"name", "type", "shape", "nbytes"} <= set(found["tensors"][0])

    def test_a_missing_file_is_a_usage_error(self, program: Program) -> None:
        result = program("inspect", "nope.gguf")
        assert (result.code, result.out) == (2, "")
        assert "nope.gguf" in result.err

    def test_what_is_no_model_has_its_own_code(self, program: Program, tmp_path: Path) -> None:
        file = tmp_path / "x.gguf"
        file.write_bytes(b"hello world, this is no model")
        result = program("inspect", str(file))
        assert (result.code, result.out) == (3, "")
        assert "is not a GGUF file" in result.err

    def test_a_file_must_be_named(self, program: Program) -> None:
        result = program("inspect")
        assert (result.code, result.out) == (2, "")
        assert result.err.startswith("error: ")


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ([3], "3"),
        ([0, 1, 2, 4], "0-2, 4"),
        ([3, 7, 11, 15], "3, 7 ... 15"),
        ([0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14], "0-2, 4-6, 8-10, 12-14"),
        ([n for n in range(24) if n % 4 < 3], "0-2, 4-6, 8-10, 12-14, ... 20-22"),
    ],
)
def test_layers_are_numbered_in_few_words(numbers: list[int], words: str) -> None:
    assert ranges(numbers) == words


def test_columns_align_figures_to_the_right() -> None:
    rows = [["a", "1 B"], ["long name", "1,000 B"]]
    assert columns(rows) == ["  a              1 B", "  long name  1,000 B"]
