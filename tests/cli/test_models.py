"""`turbodflash models`: what each command prints and does."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from turbodflash_cli import fetch
from turbodflash_cli.catalogue import Catalogue, Entry
from turbodflash_cli.models import app

CONTENT = b"weights" * 300_000
TINY = Entry(
    name="tiny",
    about="for tests",
    file="tiny.gguf",
    bytes=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    licence="Apache-2.0",
    sources=(),
)
TERMS = "https://example.org/terms"
BIG = Entry("bigger-one", "also", "big.gguf", 10_200_000_000, "0" * 64, "MIT", (), TERMS)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TURBODFLASH_CACHE", str(tmp_path))
    catalogue = Catalogue((TINY, BIG), default=TINY)
    monkeypatch.setattr(Catalogue, "shipped", staticmethod(lambda: catalogue))
    return tmp_path / "models"


def put(folder: Path) -> None:
    folder.mkdir()
    (folder / "tiny.gguf").write_bytes(CONTENT)


def run(*words: str):
    return CliRunner().invoke(app, words)


@pytest.mark.parametrize("words", [(), ("list",)])
def test_list_shows_every_model_and_whether_it_is_here(folder, words):
    before = run(*words).stdout.splitlines()
    assert before == [
        "tiny             2 MB  Apache-2.0  not fetched  (for tests; the default)",
        f"bigger-one  10,200 MB  MIT         not fetched  (also; {TERMS})",
    ]
    put(folder)
    run("pull", "tiny")
    assert run(*words).stdout.splitlines()[0] == before[0].replace("not fetched", "on this machine")


def test_pull_prints_the_path_alone_on_stdout(folder):
    put(folder)
    result = run("pull", "tiny")
    assert result.stdout == f"{folder / 'tiny.gguf'}\n"
    assert result.stderr == ""


def test_pull_hands_over_its_refusal(folder):
    result = run("pull", "bigger-one")
    assert isinstance(result.exception, fetch.FetchFailed)
    assert f"bigger-one comes under the MIT terms of use: {TERMS}" in result.stderr


def test_path_says_where_and_whether(folder):
    assert run("path", "tiny").stdout == f"{folder / 'tiny.gguf'}\n"
    assert "turbodflash models pull tiny" in run("path", "tiny").stderr
    put(folder)
    run("pull", "tiny")
    assert run("path", "tiny").stderr == ""


def test_rm_frees_the_file_and_its_record(folder):
    put(folder)
    run("pull", "tiny")
    assert run("rm", "tiny").stdout == "freed 2 MB\n"
    assert list(folder.iterdir()) == []
    assert run("rm", "tiny").stdout == "tiny was not on this machine\n"


@pytest.mark.parametrize("command", ["pull", "rm", "path"])
def test_an_unknown_name_is_answered_with_the_nearest(command):
    error = run(command, "tinny").exception
    assert str(error) == "no model named 'tinny'"
    assert error.hint == "did you mean 'tiny'?"
