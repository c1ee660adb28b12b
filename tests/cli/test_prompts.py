"""Where the prompt comes from: options, files, pipes, and all of them together."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.fake import Program
from turbodflash_cli.flags.values import unescape
from turbodflash_cli.prompts import without_last_newline


def asked(program: Program) -> object:
    [messages] = program.session.prompts
    return messages[-1]["content"]


def test_the_option(program: Program) -> None:
    program("-p", r"a\nb\t\\n")
    assert asked(program) == "a\nb\t\\n"


def test_the_option_as_it_is(program: Program) -> None:
    program("-p", r"C:\new", "--no-escape")
    assert asked(program) == r"C:\new"


def test_a_pipe(program: Program) -> None:
    program(stdin="two\nlines\n")
    assert asked(program) == "two\nlines"


def test_a_pipe_before_the_option(program: Program) -> None:
    program("-p", "Write a commit message", stdin="diff --git\n")
    assert asked(program) == "diff --git\n\nWrite a commit message"


def test_an_empty_pipe_adds_nothing(program: Program) -> None:
    program("-p", "hi", stdin="")
    assert asked(program) == "hi"


def test_a_single_turn_leaves_the_pipe_to_others(program: Program) -> None:
    program("-p", "hi", "-st", stdin="the loop's own lines\n")
    assert asked(program) == "hi"


@pytest.mark.parametrize("option", ["-p", "-f"])
def test_a_dash_reads_the_pipe(program: Program, option: str) -> None:
    program(option, "-", stdin="piped")
    assert asked(program) == "piped"


def test_a_file(program: Program, tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text("print('\\n')\n\n")
    program("-f", str(file), stdin="not read")
    assert asked(program) == "print('\\n')\n"


def test_a_file_with_escapes_on_request(program: Program, tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text(r"a\nb")
    program("-f", str(file), "-e")
    assert asked(program) == "a\nb"


def test_a_file_and_the_option(program: Program, tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text("code\n")
    program("-f", str(file), "-p", "Explain")
    assert asked(program) == "code\n\nExplain"


def test_the_system_message_of_a_file(program: Program, tmp_path: Path) -> None:
    file = tmp_path / "system.txt"
    file.write_text("Be brief.\n")
    program("-p", "hi", "-sysf", str(file))
    assert program.session.prompts[0][0]["content"] == "Be brief."


def test_stop_strings_add_up_and_know_escapes(program: Program) -> None:
    program("-p", "hi", "-r", r"\n\n", "-r", "END")
    assert program.session.asked[0][1].stop == ("\n\n", "END")


@pytest.mark.parametrize("argv", [["-p", ""], ["-p", " "], ["-p", "-"], ["-f", "-"], []])
def test_an_empty_prompt_is_a_usage_error(program: Program, argv: list[str]) -> None:
    result = program(*argv, stdin="\n")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("error: the prompt is empty.\nhint: ")


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["-f", "nofile.txt"], "prompt file not found: nofile.txt"),
        (["-p", "x", "-sysf", "nofile.txt"], "system prompt file not found: nofile.txt"),
        (["-p", "x", "--chat-template-file", "no"], "chat template file not found: no"),
        (["-p", "x", "-sys", "a", "-sysf", "b"], "-sys and -sysf both give a system message."),
        (["-no-cnv"], "-no-cnv needs a text to continue."),
        (["-p", "x", "-no-cnv", "-sys", "a"], "-no-cnv continues a text"),
        (["-cnv", "--json"], "--json is for one answer"),
        (["-p", "x", "-r", ""], "a stop string is empty"),
    ],
)
def test_what_cannot_be_is_said_before_loading(
    program: Program, argv: list[str], sentence: str
) -> None:
    result = program(*argv)
    assert result.code == 2
    assert result.err.startswith(f"error: {sentence}")
    assert program.opened == []


def test_files_that_are_no_text(program: Program, tmp_path: Path) -> None:
    file = tmp_path / "bytes"
    file.write_bytes(b"ab\xff")
    result = program("-f", str(file))
    assert (result.code, result.err.splitlines()[0]) == (
        2,
        f"error: '{file}' is not UTF-8 text (byte 2).",
    )
    folder = program("-f", str(tmp_path))
    assert folder.err == f"error: '{tmp_path}' is a folder, not a prompt file.\n"


def test_the_template_goes_to_the_loader(program: Program, tmp_path: Path) -> None:
    file = tmp_path / "t.jinja"
    file.write_text("{{ messages }}\n")
    program("-p", "hi", "--chat-template-file", str(file))
    program("-p", "hi", "--chat-template", "chatml")
    assert [each.chat_template for each in program.opened] == ["{{ messages }}", "chatml"]


@pytest.mark.parametrize(
    ("written", "meant"),
    [(r"\n\r\t\'\"\\", "\n\r\t'\"\\"), (r"\x\0\\n", r"\x\0\n"), ("\\", "\\"), ("", "")],
)
def test_escapes(written: str, meant: str) -> None:
    assert unescape(written) == meant


@pytest.mark.parametrize(
    ("text", "kept"), [("a\n", "a"), ("a\n\n", "a\n"), ("a\r\n", "a"), ("a", "a"), ("", "")]
)
def test_one_newline_belongs_to_the_file(text: str, kept: str) -> None:
    assert without_last_newline(text) == kept
