"""What is told about drafting, and where."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.fake import DID, DRAFT, FakeSession, Program, Result, drafted
from turbodflash_cli.speculation import NOT_REAL, counts, opening, table
from turbodflash_engine import BadModel, Speculation, Text, Verified

LINE = "[ Draft: 40.0% accepted (246/615) | 7.00 tokens/step | n-max 15 ]"
OPENING = "draft: a DFlash draft from 'weak.gguf', up to 15 tokens a step"


@pytest.fixture
def drafting(program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """A program whose session drafts; `-md weak.gguf` is a file that is there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "weak.gguf").write_bytes(b"GGUF")
    program.session = FakeSession([Text("x"), Verified(15, 6), drafted()], draft=DRAFT)
    return program


def ask(program: Program, *argv: str) -> Result:
    return program("-p", "hi", "-md", "weak.gguf", *argv)


class TestOpening:
    def test_what_the_draft_is_is_said_once_and_nowhere_but_on_stderr(
        self, drafting: Program
    ) -> None:
        result = ask(drafting)
        assert result.out == "x\n"
        assert result.err.splitlines()[0] == OPENING
        assert result.err.count("draft:") == 1

    @pytest.mark.parametrize(
        ("more", "line"),
        [
            ({"kind": "draft-simple"}, "draft: a plain model from 'weak.gguf', up to 15 tokens"),
            ({"kind": "draft-eagle3"}, "draft: an EAGLE-3 draft from 'weak.gguf', up to 15"),
            ({"kind": "ngram-mod", "path": None}, "draft: ngram-mod, up to 15 tokens a step"),
            (
                {"kind": "ngram-simple, draft-dspark"},
                "draft: ngram-simple and a DSpark draft from 'weak.gguf', up to 15 tokens a step",
            ),
        ],
    )
    def test_every_kind(self, more: dict[str, Any], line: str) -> None:
        assert opening(DRAFT._replace(**more)).startswith(line)

    def test_details_on_request(self, drafting: Program) -> None:
        said = ask(drafting, "-v", "--spec-draft-n-max", "16").err
        assert "draft: reads what enters layers 2, 15, 28 of the model\n" in said
        assert "draft: 21.9 MiB, 21.6 M parameters, context 4096 tokens\n" in said
        assert "draft: memory weights 21.0 MiB, cache 8.6 MiB, scratch 0 B\n" in said
        assert "draft: 16 tokens a step were asked for, 15 are drafted\n" in said

    def test_clamping_is_not_worth_a_word_otherwise(self, drafting: Program) -> None:
        assert "16" not in ask(drafting, "--spec-draft-n-max", "16").err

    def test_a_draft_that_does_not_fit_has_its_own_code(self, drafting: Program) -> None:
        def refuse(options: Any, progress: Any = None) -> FakeSession:
            raise BadModel("the draft was made for a target with hidden size 4096; this has 576")

        drafting.monkeypatch.setattr("turbodflash_engine.open_session", refuse)
        result = ask(drafting)
        assert (result.code, result.out) == (3, "")
        assert result.err.startswith("error: the draft was made for a target with hidden size")


class TestAfterAnAnswer:
    def test_a_second_line(self, drafting: Program) -> None:
        assert ask(drafting).err.splitlines()[-1] == LINE

    def test_none_when_timings_are_hidden(self, drafting: Program) -> None:
        assert ask(drafting, "--no-show-timings").err == f"{OPENING}\n"

    def test_no_draft_no_line(self, program: Program) -> None:
        assert "Draft" not in program("-p", "hi").err

    def test_a_parked_drafter_is_not_passed_over(self, drafting: Program) -> None:
        parked = Speculation("draft-dflash", steps=40, emitted=40, widths=(40,))
        drafting.session = FakeSession([drafted()._replace(speculation=parked)], draft=DRAFT)
        assert ask(drafting).err.splitlines()[-1] == (
            "[ Draft: nothing drafted | 1.00 tokens/step | n-max 15 ]"
        )

    def test_the_account(self, drafting: Program) -> None:
        said = ask(drafting, "--stats").err
        for part in (
            *("drafter      draft-dflash", "passes       41 for 287 tokens: 7.00 a pass"),
            *("drafts       41 verified, 1 made to see", "acceptance   40.0 % of the drafted"),
            "tokens       615 drafted, 280 tested, 246 accepted",
            "by position  1.00 1.00 1.00 1.00 1.00 1.00",
            *("accepted     6 tokens 41x\n", "verified     15 tokens 41x\n"),
            "seconds      draft 0.250, verify 1.500, observe 0.125, rest 0.062",
            "memory       weights 21.0 MiB, cache 8.6 MiB, scratch 0 B",
        ):
            assert f"  {part}" in said

    def test_the_account_without_a_drafter(self, program: Program) -> None:
        assert program("-p", "hi", "--stats").err.endswith("  no drafting\n")

    def test_an_account_of_nothing(self) -> None:
        lines = table(Speculation("ngram-mod"), None)
        assert "  by position  none" in lines
        assert "  accepted     none" in lines


class TestJson:
    def test_the_record(self, drafting: Program) -> None:
        found = json.loads(ask(drafting, "--json").out)
        draft, timings = found["draft"], found["timings"]
        assert (draft["model"], draft["kind"], draft["n_max"]) == ("weak.gguf", "draft-dflash", 15)
        assert (draft["drafted"], draft["tested"], draft["accepted"]) == (615, 280, 246)
        assert (draft["steps"], draft["emitted"], draft["mean_accepted"]) == (41, 287, 7.0)
        assert (draft["per_position"], draft["histogram"][-1]) == ([1.0] * 6, 41)
        assert (draft["seconds_verify"], draft["bytes"]) == (1.5, 31_000_000)
        assert (timings["draft_n"], timings["draft_n_accepted"]) == (615, 246)
        assert (timings["draft_rounds"], timings["draft_kind"]) == (41, "draft-dflash")
        assert "not_real" not in found

    def test_every_count_is_in_it(self) -> None:
        assert set(DID._fields) - {"nbytes"} <= set(counts(DID))

    def test_without_a_drafter_there_is_none(self, program: Program) -> None:
        found = json.loads(program("-p", "hi", "--json").out)
        assert found["draft"] is None
        assert "draft_n" not in found["timings"]


class TestSynthetic:
    @pytest.fixture
    def synthetic(self, drafting: Program) -> Program:
        draft = DRAFT._replace(synthetic=True)
        drafting.session = FakeSession([Text("x"), drafted(synthetic=True)], draft=draft)
        return drafting

    def test_it_is_said_before_and_after(self, synthetic: Program) -> None:
        said = ask(synthetic, "--spec-synth-len", "4", "--stats").err
        assert f"warning: {NOT_REAL}.\n" in said
        assert LINE.replace(" ]", " | not real ]") in said
        assert f"  note         {NOT_REAL}\n" in said

    def test_and_in_json(self, synthetic: Program) -> None:
        found = json.loads(ask(synthetic, "--spec-synth-len", "4", "--json").out)
        assert found["not_real"] == NOT_REAL
        assert found["draft"]["synthetic"] is True


class TestChat:
    def test_the_sum_of_all_answers(self, drafting: Program) -> None:
        result = drafting("-cnv", "-md", "weak.gguf", stdin="a\nb\n/stats\n")
        assert "  passes       82 for 574 tokens: 7.00 a pass\n" in result.err
        assert "  accepted     6 tokens 82x\n" in result.err

    def test_bad_drafts_are_remarked_upon_once(self, drafting: Program) -> None:
        poor = drafted(accepted=60, emitted=101)
        drafting.session = FakeSession([Text("x"), poor], draft=DRAFT)
        result = drafting("-cnv", "-md", "weak.gguf", stdin="a\nb\n")
        assert result.err.count("The drafts are rarely right;") == 1

    def test_good_ones_are_not(self, drafting: Program) -> None:
        assert "rarely" not in drafting("-cnv", "-md", "weak.gguf", stdin="a\nb\n").err
