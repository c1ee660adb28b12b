"""The program from the command line to its last line, drafting with tiny models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.fake import Stream
from tests.golden_files import unpacked
from turbodflash_cli.app import main

DRAFTS = {"draft-dflash": "dflash", "draft-dspark": "dspark", "draft-eagle3": "eagle3"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


class Program:
    """Runs it on the tiny target with the device that is plain numpy."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capsys = folder, capsys
        self.target = str(unpacked("tiny-qwen3", folder))

    def draft(self, name: str) -> str:
        return str(unpacked(f"tiny-{name}--qwen3", self.folder))

    def __call__(self, *argv: str, command: tuple[str, ...] = ()) -> tuple[int, str, str]:
        code = main([*command, "-m", self.target, "-dev", "reference", "-c", "256", *argv])
        said = self.capsys.readouterr()
        return code, said.out, said.err

    def answer(self, *argv: str) -> tuple[str, str]:
        code, out, err = self("-no-cnv", "-p", "Once upon a time", "-n", "24", *argv)
        assert code == 0, err
        return out, err


@pytest.fixture
def program(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Program:
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr("sys.stdin", Stream(tty=True))
    return Program(folder, capsys)


@pytest.mark.parametrize("kind", DRAFTS)
@pytest.mark.parametrize("sampling", [("--temp", "0"), ("--temp", "0.8", "--seed", "7")])
def test_the_text_is_the_same(program: Program, kind: str, sampling: tuple[str, ...]) -> None:
    plain, _ = program.answer(*sampling)
    draft = program.draft(DRAFTS[kind])
    drafted, said = program.answer(*sampling, "-md", draft, "--spec-width", "4")
    assert drafted == plain
    assert f"from '{Path(draft).name}'" in said.splitlines()[0]
    assert said.splitlines()[-1].startswith("[ Draft: ")


def test_without_a_file_too(program: Program) -> None:
    plain, _ = program.answer("--temp", "0")
    types = "ngram-mod,ngram-simple,ngram-map-k,ngram-map-k4v,ngram-cache"
    drafted, said = program.answer("--temp", "0", "--spec-type", types)
    assert drafted == plain
    assert said.startswith("draft: ngram-simple and ngram-map-k and")


@pytest.mark.parametrize("kind", DRAFTS)
def test_json_says_who_drafted_and_how(program: Program, kind: str) -> None:
    draft = program.draft(DRAFTS[kind])
    out, _ = program.answer("--temp", "0", "-md", draft, "--spec-width", "4", "--json")
    found = json.loads(out)
    did = found["draft"]
    assert (did["kind"], did["model"]) == (kind, draft)
    assert did["emitted"] == did["steps"] + did["accepted"] == 23
    assert did["accepted"] <= did["tested"] <= did["drafted"]
    assert found["timings"]["draft_n"] == did["drafted"] > 0


def test_what_does_not_fit_ends_with_a_sentence(program: Program) -> None:
    code, out, err = program("-p", "Hi", "-md", program.draft("dflash"), "--eagle3")
    assert (code, out) == (3, "")
    assert "drafts as draft-dflash, not as draft-eagle3" in err


def test_synthetic_acceptance_is_marked(program: Program) -> None:
    argv = ("-md", program.draft("dflash"), "--spec-synth-rates", "1,1,1", "--spec-width", "3")
    _, said = program.answer("--temp", "0", "--ignore-eos", *argv)
    assert "warning: acceptance is synthetic; the text is not real." in said
    assert said.splitlines()[-1].endswith("| 3.83 tokens/step | n-max 7 | not real ]")


def test_the_bench_compares_and_finds_no_difference(program: Program, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts"
    prompts.write_text("Sort a list.\nTell a story.\n", "utf-8")
    argv = ("-md", program.draft("dflash"), "--prompts", str(prompts), "-n", "8", "-r", "1")
    code, out, _ = program(*argv, "-o", "json", command=("bench",))
    found = json.loads(out)
    assert (code, found["identical"], list(found["kinds"])) == (0, True, ["given"])
    assert found["draft_kind"] == "draft-dflash"
    assert found["prompt_tokens"] >= 128


def test_the_doctor_has_a_look(program: Program) -> None:
    code, out, _ = program("-md", program.draft("dflash"), "--spec-doctor")
    assert code == 0
    for name in ("pairing", "layer ids", "mask token", "embedding scale", "thinking", "acceptance"):
        assert f"  {name}" in out
    assert "acceptance on the shipped prompts: " in out
    assert out.splitlines()[-1].startswith("suspected: ")
