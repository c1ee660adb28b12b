"""`turbodflash bench -md` and `--spec-doctor`: what is measured, and how it is shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import turbodflash_engine
from tests.cli.fake import DID, Program, Result
from turbodflash_cli.bench_drafting import bench_prompts
from turbodflash_engine import BadUsage, Check, Diagnosis, Prompt, SpecOptions

SOME = {
    "off_tps": 120.0,
    "on_tps": 150.0,
    "speedup": 1.25,
    "prompt_off_tps": 700.0,
    "prompt_on_tps": 690.0,
    "prompt_ratio": 0.9857,
    "drafting_over_step": 0.375,
    "mean_accepted": 1.5,
    "acceptance": 0.25,
    "per_position": [0.5, 0.25],
    "histogram": [20, 0, 5],
    "widths": [3, 22],
    "seconds": {"draft": 0.25, "verify": 1.5, "observe": 0.125, "rest": 0.0},
    "identical": True,
    "first_difference": None,
}
FIGURES = {
    "model": "Tiny",
    "device": "cpu avx2, 2 threads",
    "draft": "some/weak.gguf",
    "draft_kind": "draft-dflash",
    "n_max": 7,
    "fallback": None,
    "draft_bytes": 2**24,
    "tokens": 128,
    "repeats": 2,
    "synthetic": False,
    **SOME,
    "prompt_tokens": 512,
    "kinds": {"code": SOME, "prose": {**SOME, "off_tps": 100.0, "speedup": 1.5}},
}
WRONG = {"prompt": "Hi", "position": 7, "off": 11, "on": 12}


class Bench:
    """Stands in for the measurement, and remembers what was asked for."""

    figures: dict[str, Any] = FIGURES

    def __call__(self, options: Any, prompts: Any, progress: Any = None, **more: Any) -> Any:
        self.options, self.prompts, self.more = options, prompts, more
        return self.figures


@pytest.fixture
def bench(program: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bench:
    found = Bench()
    monkeypatch.setitem(vars(turbodflash_engine), "measure_speculation", found)
    monkeypatch.setattr("turbodflash_cli.bench.find_model", lambda terminal, flags: flags.model)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d.gguf").write_bytes(b"GGUF")
    return found


def run(program: Program, *argv: str) -> Result:
    return program("bench", "-m", "x.gguf", "-md", "d.gguf", *argv)


class TestWhatIsMeasured:
    def test_the_shipped_prompts_with_the_engines_own_numbers(
        self, program: Program, bench: Bench
    ) -> None:
        assert run(program).code == 0
        assert bench.options.spec == SpecOptions(model=Path("d.gguf"))
        assert [prompt.kind for prompt in bench.prompts] == [
            *(*["code"] * 3, *["prose"] * 3, *["list"] * 2, *["chat"] * 2)
        ]
        assert bench.more == {"thinking": None}

    def test_what_was_asked_for(self, program: Program, bench: Bench) -> None:
        Path("p.txt").write_text("One?\n\nTwo?\n", "utf-8")
        program.monkeypatch.setenv("LLAMA_SPEC_NO_THINK", "1")
        run(program, "-n", "64", "-r", "3", "--prompts", "p.txt", "--spec-width", "8", "-c", "1k")
        assert bench.prompts == [Prompt("given", "One?"), Prompt("given", "Two?")]
        assert bench.more == {"tokens": 64, "repeats": 3, "thinking": False}
        assert (bench.options.spec.width, bench.options.context) == (8, 1024)

    def test_prompts_of_kinds(self, tmp_path: Path) -> None:
        file = tmp_path / "p.json"
        file.write_text('[{"kind": "code", "text": "a\\nb"}, {"text": "c"}]', "utf-8")
        assert bench_prompts(file) == [Prompt("code", "a\nb"), Prompt("given", "c")]

    @pytest.mark.parametrize("text", ["[", "[1]", '["a"]', '[{"kind": "code"}]', "", " \n\n", "[]"])
    def test_what_is_no_list_of_prompts(self, tmp_path: Path, text: str) -> None:
        file = tmp_path / "p"
        file.write_text(text, "utf-8")
        with pytest.raises(BadUsage, match="prompt"):
            bench_prompts(file)

    @pytest.mark.parametrize("option", [["-n", "4"], ["-r", "1"], ["--prompts", "p"]])
    def test_options_that_need_a_drafter(
        self, program: Program, bench: Bench, option: list[str]
    ) -> None:
        result = program("bench", "-m", "x.gguf", *option)
        assert (result.code, result.out) == (2, "")
        assert result.err.startswith(f"error: {option[0]} needs a drafter.\n")


class TestHowItIsShown:
    def test_a_table(self, program: Program, bench: Bench) -> None:
        out = run(program).out
        lines = [line.split() for line in out.splitlines()]
        assert out.startswith("model  Tiny on cpu avx2, 2 threads\n")
        assert "a DFlash draft from 'weak.gguf', up to 7 tokens a step, 16.0 MiB" in out
        assert ["code", "120.0", "150.0", "1.25", "700", "690", "1.50", "25%", "yes"] in lines
        assert ["prose", "100.0", "150.0", "1.50", "700", "690", "1.50", "25%", "yes"] in lines
        assert ["all", "120.0", "150.0", "1.25", "700", "690", "1.50", "25%", "yes"] in lines
        assert "prompt of 512 tokens: with the drafter 0.99 of the speed without\n" in out
        assert "accepted of a draft: 0 tokens 20x, 2 tokens 5x\n" in out
        assert "by position: 0.50 0.25\n" in out
        assert out.endswith("identical: yes\n")

    def test_who_guesses_where_the_draft_does_not_pay(self, program: Program, bench: Bench) -> None:
        bench.figures = {**FIGURES, "fallback": "ngram-cache"}
        assert "16.0 MiB; where it does not pay, ngram-cache\n" in run(program).out

    def test_a_difference_is_shown(self, program: Program, bench: Bench) -> None:
        bench.figures = {**FIGURES, "identical": False, "first_difference": WRONG}
        assert run(program).out.endswith("identical: no, token 7 is 12 and not 11 after 'Hi'\n")

    def test_synthetic_acceptance_is_not_real(self, program: Program, bench: Bench) -> None:
        bench.figures = {**FIGURES, "identical": None, "synthetic": True}
        assert "identical: not compared, acceptance is synthetic" in run(program).out

    def test_markdown(self, program: Program, bench: Bench) -> None:
        lines = run(program, "-o", "md").out.splitlines()
        assert lines[0].count("|") == lines[1].count("|") == lines[2].count("|") == 10
        assert "- identical: yes" in lines

    def test_json_has_the_figures_as_they_are(self, program: Program, bench: Bench) -> None:
        found = json.loads(run(program, "-o", "json").out)
        assert found == FIGURES
        wanted = {"off_tps", "on_tps", "speedup", "prompt_off_tps", "prompt_on_tps"}
        wanted |= {"mean_accepted", "identical"}
        assert all(wanted <= set(part) for part in (found, *found["kinds"].values()))

    def test_csv_is_two_lines(self, program: Program, bench: Bench) -> None:
        out = run(program, "-o", "csv").out
        assert len(out.splitlines()) == 2
        assert '"kinds_prose_speedup"' in out


class TestDoctor:
    @pytest.fixture
    def asked(self, program: Program, monkeypatch: pytest.MonkeyPatch, bench: Bench) -> list[Any]:
        asked: list[Any] = []
        found = Diagnosis(
            draft_kind="draft-dflash",
            template="the model's own, thinking off",
            example="<|im_start|>user\nHi<|im_end|>\n",
            checks=(
                Check("pairing", False, "all fits"),
                Check("layer ids", True, "2, 15: 1.20; +1: 2.40; off by one"),
            ),
            speculation=DID,
        )

        def diagnose(options: Any, prompts: Any, progress: Any = None, **more: Any) -> Diagnosis:
            asked.extend([options, prompts, more])
            return found

        monkeypatch.setitem(vars(turbodflash_engine), "diagnose", diagnose)
        return asked

    def test_a_page(self, program: Program, asked: list[Any]) -> None:
        result = program("-m", "x", "-md", "d.gguf", "--spec-doctor", "--reasoning", "off")
        assert (result.code, result.err) == (0, "")
        assert asked[0].spec == SpecOptions(model=Path("d.gguf"))
        assert (len(asked[1]), asked[2]) == (10, {"thinking": False})
        for part in (
            *("draft: a DFlash draft\n", "template: the model's own, thinking off\n"),
            *("  | <|im_start|>user\n  | Hi<|im_end|>\n", "  ok       pairing    all fits\n"),
            "  SUSPECT  layer ids  2, 15: 1.20; +1: 2.40; off by one\n",
            *("acceptance on the shipped prompts: 7.00 tokens a pass\n", "  1  1.000\n"),
        ):
            assert part in result.out
        assert result.out.endswith("suspected: layer ids\n")

    @pytest.mark.parametrize("argv", [[], ["--spec-type", "ngram-mod"]])
    def test_it_needs_a_draft(self, program: Program, asked: list[Any], argv: list[str]) -> None:
        result = program("-m", "x", "--spec-doctor", *argv)
        assert (result.code, result.out, asked) == (2, "", [])
        assert result.err.startswith("error: --spec-doctor needs a draft model.\n")
