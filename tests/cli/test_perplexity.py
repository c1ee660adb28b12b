"""`turbodflash perplexity`: what is asked of the engine, and what is printed where."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import turbodflash_engine
from tests.cli.fake import Program, Result
from turbodflash_engine import (
    Estimate,
    LoadOptions,
    Perplexity,
    PerplexityOptions,
    Progress,
    SweepRow,
)
from turbodflash_engine.perplexity.divergence import diverged
from turbodflash_engine.perplexity.likely import Difference

FOUND = Perplexity(
    model="Tiny",
    file=Path("tiny.gguf"),
    device="cpu avx2, 2 threads",
    cache_type_k="f16",
    cache_type_v="f16",
    cache_bytes_per_token=23040.0,
    context=512,
    stride=0,
    chunks=2,
    tokens=1024,
    scored=510,
    ppl=Estimate(59.054412, 2.745571),
    running=(68.76211, 59.054412),
    seconds=2.0,
)
MOVED = diverged(
    Difference(
        np.array([1.0, 2.0, 3.0, 4.0]),
        np.array([1.0, 2.5, 3.0, 3.5]),
        np.array([0.0, 0.25, 0.5, 1.0]),
        np.array([1.0, 1.0, 1.0, 0.0]),
    )
)


class Engine:
    """Stands in for the measurements, and remembers what was asked for."""

    found = FOUND
    rows: tuple[SweepRow, ...] = ()
    interrupted = loaded = False

    def measure(
        self, options: LoadOptions, text: str | None, asked: PerplexityOptions, progress: Any
    ) -> Perplexity:
        self.options, self.text, self.asked = options, text, asked
        if self.interrupted:
            signal.raise_signal(signal.SIGINT)
            progress(Progress("loading", 1, 2, "bytes"))
            self.loaded = True
        progress(Progress("perplexity", 512, 1024, "tokens", "PPL 68.7621"))
        return self.found

    def sweep(
        self,
        options: LoadOptions,
        text: str,
        asked: PerplexityOptions,
        types: tuple[tuple[str, str], ...],
        progress: Any,
    ) -> list[SweepRow]:
        self.options, self.text, self.asked, self.types = options, text, asked, types
        return list(self.rows)


@pytest.fixture
def engine(program: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Engine:
    played = Engine()
    monkeypatch.setitem(vars(turbodflash_engine), "measure_perplexity", played.measure)
    monkeypatch.setitem(vars(turbodflash_engine), "sweep_cache_types", played.sweep)
    monkeypatch.setattr(
        "turbodflash_cli.perplexity.find_model", lambda terminal, flags: flags.model
    )
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.txt").write_text("Some text.\n", "utf-8")
    return played


def run(program: Program, *argv: str, **streams: Any) -> Result:
    return program("perplexity", "-m", "tiny.gguf", *argv, **streams)


class TestWhatIsAsked:
    def test_a_file_and_the_defaults(self, program: Program, engine: Engine) -> None:
        assert run(program, "-f", "t.txt").code == 0
        assert engine.text == "Some text."
        assert engine.asked == PerplexityOptions()
        assert engine.options.model == Path("tiny.gguf")

    def test_everything(self, program: Program, engine: Engine) -> None:
        options = "-c 1k --chunks 3 --ppl-stride 256 --kl-divergence-base b -ctk f32 -t 2 -ub 64"
        run(program, "-f", "t.txt", *options.split())
        assert engine.asked == PerplexityOptions(context=1024, stride=256, chunks=3, save=Path("b"))
        assert (engine.options.cache_type_k, engine.options.cache_type_v) == ("f32", "f16")
        assert (engine.options.threads, engine.options.ubatch) == (2, 64)

    def test_all_chunks(self, program: Program, engine: Engine) -> None:
        run(program, "-f", "t.txt", "--chunks", "-1")
        assert engine.asked == PerplexityOptions()

    def test_a_comparison_needs_no_text(self, program: Program, engine: Engine) -> None:
        assert run(program, "--kl-divergence", "--kl-divergence-base", "b").code == 0
        assert engine.text is None
        assert engine.asked == PerplexityOptions(against=Path("b"))

    @pytest.mark.parametrize("argv", [[], ["-f", "-"]])
    def test_a_pipe(self, program: Program, engine: Engine, argv: list[str]) -> None:
        run(program, *argv, stdin="From a pipe.\n")
        assert engine.text == "From a pipe."

    def test_a_sweep_of_some_types(self, program: Program, engine: Engine) -> None:
        engine.rows = (SweepRow("f16", "f16", FOUND),)
        assert run(program, "-f", "t.txt", "--kv-sweep", "f32,f16/f32", "--chunks", "2").code == 0
        assert engine.types == (("f32", "f32"), ("f16", "f32"))
        assert engine.asked == PerplexityOptions(chunks=2)

    def test_a_sweep_of_all_types(self, program: Program, engine: Engine) -> None:
        engine.rows = (SweepRow("f16", "f16", FOUND),)
        run(program, "--kv-sweep", "-f", "t.txt")
        assert {("f16", "f16"), ("f32", "f32")} <= set(engine.types)


def test_an_interruption_waits_for_the_end_of_a_pass(program: Program, engine: Engine) -> None:
    engine.interrupted = True
    result = run(program, "-f", "t.txt")
    assert (result.code, result.out) == (130, "")
    assert engine.loaded


class TestWhatIsPrinted:
    def test_the_estimate_alone_on_stdout(self, program: Program, engine: Engine) -> None:
        result = run(program, "-f", "t.txt")
        assert result.out == "Final estimate: PPL = 59.0544 +/- 2.74557\n"
        assert result.err == ("[ Perplexity: 2 chunks of 512, 510 tokens scored | 512.0 t/s ]\n")

    def test_what_a_person_should_know(self, program: Program, engine: Engine) -> None:
        noted = replace(FOUND, notes=("q8_0 keys in 30 layers",))
        engine.found, engine.rows = noted, (SweepRow("f16", "f16", noted),) * 2
        assert run(program, "-f", "t.txt").err.startswith("warning: q8_0 keys in 30 layers\n")
        swept = run(program, "-f", "t.txt", "--kv-sweep", "all")
        assert swept.err == "warning: q8_0 keys in 30 layers\n"

    def test_more_on_request(self, program: Program, engine: Engine) -> None:
        err = run(program, "-f", "t.txt", "-v").err
        assert "device: cpu avx2, 2 threads; KV cache f16/f16\n" in err
        assert "[1]68.7621,[2]59.0544\n" in err

    def test_json(self, program: Program, engine: Engine) -> None:
        engine.found = replace(FOUND, divergence=MOVED)
        told = json.loads(run(program, "-f", "t.txt", "--json").out)
        assert (told["ppl"], told["ppl_error"]) == (59.054412, 2.745571)
        assert (told["model"], told["file"], told["chunks"]) == ("Tiny", "tiny.gguf", 2)
        assert told["running"] == [68.76211, 59.054412]
        assert told["tokens_per_second"] == 512
        assert told["divergence"]["kld"] == 0.4375
        assert told["divergence"]["kld_quantiles"]["0.5"] == 0.375
        assert "kld_error" in told["divergence"]

    def test_json_without_a_base(self, program: Program, engine: Engine) -> None:
        assert json.loads(run(program, "-f", "t.txt", "--json").out)["divergence"] is None

    def test_a_comparison(self, program: Program, engine: Engine) -> None:
        engine.found = replace(FOUND, divergence=MOVED)
        lines = run(program, "--kl-divergence", "--kl-divergence-base", "b").out.splitlines()
        assert "Mean PPL(Q)                   :  12.182494 ±   7.863766" in lines
        assert "Mean PPL(Q)/PPL(base)         :   1.000000 ±   0.204124" in lines
        assert "Mean    KLD:   0.437500 ±   0.213478" in lines
        assert "Maximum KLD:   1.000000" in lines
        assert "Median  KLD:   0.375000" in lines
        assert " 5.0%   KLD:   0.037500" in lines
        assert "Same top p: 75.000 ± 25.000 %" in lines
        assert lines[-1] == "Final estimate: PPL = 59.0544 +/- 2.74557"

    def test_a_table_of_types(self, program: Program, engine: Engine) -> None:
        moved = replace(
            FOUND,
            cache_type_k="q8_0",
            cache_type_v="turbo4",
            cache_bytes_per_token=12240.0,
            divergence=MOVED,
        )
        engine.rows = (
            SweepRow("f16", "f16", FOUND),
            SweepRow("q8_0", "turbo4", moved),
            SweepRow("turbo2", "turbo2", replace(moved, cache_type_k="turbo2")),
            SweepRow("turbo3", "turbo3", None, "layer 0 has heads of 80"),
        )
        result = run(program, "-f", "t.txt", "--kv-sweep", "all")
        lines = [line.split() for line in result.out.splitlines()]
        assert lines[0][:2] == ["type", "bytes/token"]
        assert lines[1] == ["f16", "23,040", "59.0544", "2.7456", "1", "0", "0", "100%"]
        figures = "12,240 59.0544 2.7456 1.00000 0.20412 0.437500 75.00%"
        assert " ".join(lines[2]) == f"q8_0/turbo4 {figures}"
        assert " ".join(lines[3]) == f"turbo2 (turbo2/turbo4) {figures}"
        assert " ".join(lines[4]) == "turbo3 layer 0 has heads of 80"

    def test_a_table_of_types_as_json(self, program: Program, engine: Engine) -> None:
        engine.rows = (SweepRow("f16", "f16", FOUND), SweepRow("turbo3", "turbo3", None, "no"))
        told = json.loads(run(program, "-f", "t.txt", "--kv-sweep", "all", "--json").out)
        assert [(row["cache_types"], row["refused"]) for row in told] == [
            ("f16", None),
            ("turbo3", "no"),
        ]
        assert told[0]["ppl"] == 59.054412
        assert "ppl" not in told[1]


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ([], "there is no text to read."),
        (["-f", "none.txt"], "text file not found: none.txt"),
        (["-f", "empty.txt"], "the text is empty."),
        (["-f", "t.txt", "--chunks", "0"], "--chunks 0 reads nothing."),
        (["-f", "t.txt", "--chunks", "-2"], "--chunks takes a whole number of at least -1"),
        (["-f", "t.txt", "--ppl-stride", "x"], "--ppl-stride takes a whole number, not 'x'."),
        (["-f", "t.txt", "--kl-divergence"], "--kl-divergence needs a base to compare with."),
        (["-f", "t.txt", "--kv-sweep", "f17"], "unknown cache type 'f17' for --kv-sweep."),
        (["-f", "t.txt", "--kv-sweep", ","], "--kv-sweep takes cache types by commas, not ','."),
        (["-f", "t.txt", "--kv-sweep", "-ctk", "f32"], "leave out -ctk."),
        (
            ["-f", "t.txt", "--kv-sweep", "all", "--kl-divergence-base", "b"],
            "leave out --kl-divergence-base.",
        ),
        (["-f", "t.txt", "-md", "d.gguf"], "unknown option '-md'."),
    ],
)
def test_what_is_asked_wrongly(
    program: Program, engine: Engine, argv: list[str], says: str
) -> None:
    Path("empty.txt").write_text(" \n", "utf-8")
    result = run(program, *argv)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("error: ")
    assert says in result.err
    assert not hasattr(engine, "asked")
