"""A prompt's cache in a file: when it is read and written, and what is told of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.fake import FakeSession, Program, finished
from turbodflash_engine import BadUsage, NotReusable, Started, Text


def test_a_file_that_is_not_there_yet_is_written(program: Program, tmp_path: Path) -> None:
    file = tmp_path / "kept"
    result = program("-p", "hi", "--prompt-cache", str(file))
    assert program.session.restored == []
    assert program.session.saved == [(file, False)]
    assert (result.code, result.out) == (0, "Hello\n")
    assert result.err.endswith("[prompt cache: 0 of 10 tokens reused]\n")


@pytest.mark.parametrize(
    ("more", "saved"),
    [([], [False]), (["--prompt-cache-all"], [True]), (["--prompt-cache-ro"], [])],
)
def test_one_that_is_there_is_read(
    more: list[str], saved: list[bool], program: Program, tmp_path: Path
) -> None:
    file = tmp_path / "kept"
    file.touch()
    program.session = FakeSession([Started(10, 9, 42), Text("Hi"), finished(cached_tokens=9)])
    result = program("-p", "hi", "--prompt-cache", str(file), *more)
    assert program.session.restored == [file]
    assert program.session.saved == [(file, answer) for answer in saved]
    assert "[prompt cache: 9 of 10 tokens reused]" in result.err


def test_a_chat_is_kept_when_it_is_over(program: Program, tmp_path: Path) -> None:
    program(
        "--prompt-cache", str(tmp_path / "kept"), "--prompt-cache-all", "-cnv", stdin="hi\nho\n"
    )
    assert program.session.saved == [(tmp_path / "kept", True)]


def test_what_does_not_belong_here_is_said_and_computed(program: Program, tmp_path: Path) -> None:
    file = tmp_path / "kept"
    file.touch()
    program.session.refusal = NotReusable("the cache is of the moon", hint="everything is anew")
    result = program("-p", "hi", "--prompt-cache", str(file))
    assert (result.code, result.out) == (0, "Hello\n")
    assert result.err.startswith("warning: the cache is of the moon; everything is anew")
    assert program.session.saved == [(file, False)]


def test_what_is_something_else_ends_the_program(program: Program, tmp_path: Path) -> None:
    file = tmp_path / "kept"
    file.touch()
    program.session.refusal = BadUsage("'kept' is no prompt cache", hint="name another file")
    result = program("-p", "hi", "--prompt-cache", str(file))
    assert (result.code, result.out) == (2, "")
    assert program.session.saved == []


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["--prompt-cache-all"], "--prompt-cache-all needs a file."),
        (["--prompt-cache-ro"], "--prompt-cache-ro needs a file."),
        (["--prompt-cache", "x", "--prompt-cache-all", "--prompt-cache-ro"], "does not."),
    ],
)
def test_what_cannot_go_together(argv: list[str], why: str, program: Program) -> None:
    result = program("-p", "hi", *argv)
    assert result.code == 2
    assert why in result.err


def test_a_context_that_shifts(program: Program) -> None:
    program.session = FakeSession([Started(10, 0, 42), Text("Hi"), finished(dropped=1234)])
    result = program("-p", "hi", "--context-shift", "--keep", "5")
    assert program.opened[0].context_shift
    assert program.opened[0].keep == 5
    assert "[context full: 1,234 of its oldest tokens were dropped]" in result.err
    program("-p", "hi", "--context-shift", "--no-context-shift")
    assert not program.opened[1].context_shift
