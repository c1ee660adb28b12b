"""The keys of the line editor, typed through a pipe into the real prompt_toolkit."""

from __future__ import annotations

from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from turbodflash_cli.compose import entered
from turbodflash_cli.editor import Editor, SlashCompleter
from turbodflash_cli.reader import history_file, state_folder

ENTER, ALT_ENTER, CTRL_C, CTRL_D, CTRL_J, UP = "\r", "\x1b\r", "\x03", "\x04", "\n", "\x1b[A"


def typed(keys: str, *, multiline: bool = False, history: Path | None = None) -> str | None:
    """What the editor makes of some keys."""
    with create_pipe_input() as pipe:
        pipe.send_text(keys)
        editor = Editor(history, multiline, ["/help"], input=pipe, output=DummyOutput())
        return editor.read("> ")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (f"hello{ENTER}", "hello"),
        (f"a{CTRL_J}b{ENTER}", "a\nb"),
        (f"a{ALT_ENTER}b{ENTER}", "a\nb"),
        (f"a\\{ENTER}b{ENTER}", "a\nb"),
        (f'"""{ENTER}a\\{ENTER}b{ENTER}"""{ENTER}', "a\\\nb"),
        (f"\x1b[200~one\rtwo\nthree\x1b[201~{ENTER}", "one\ntwo\nthree"),
        (f"gone{CTRL_C}here{ENTER}", "here"),
        (CTRL_D, None),
    ],
)
def test_keys(keys: str, message: str | None) -> None:
    assert typed(keys) == message


def test_with_multiline_input_enter_adds_a_line() -> None:
    assert typed(f"a{ENTER}b\\{ENTER}", multiline=True) == "a\nb"


def test_ctrl_c_on_an_empty_line_interrupts() -> None:
    with pytest.raises(KeyboardInterrupt):
        typed(CTRL_C)


def test_history_outlives_the_program() -> None:
    file = history_file()
    assert file is not None
    typed(f"yesterday{ENTER}", history=file)
    assert typed(f"{UP}{ENTER}", history=file) == "yesterday"
    assert file.parent == state_folder()
    assert file.stat().st_mode & 0o077 == 0


def test_no_history_where_nothing_can_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert history_file() is None


def test_a_text_is_offered_for_editing() -> None:
    with create_pipe_input() as pipe:
        pipe.send_text(f"!{ENTER}")
        editor = Editor(None, False, [], input=pipe, output=DummyOutput())
        assert editor.read("> ", "hello") == "hello!"


@pytest.mark.parametrize(
    ("before", "completions"),
    [("/re", ["/regen", "/read"]), ("/RE", ["/regen", "/read"]), ("hello", []), ("/help x", [])],
)
def test_commands_are_completed(before: str, completions: list[str]) -> None:
    completer = SlashCompleter(["/help", "/regen", "/read"])
    found = completer.get_completions(Document(before), CompleteEvent())
    assert [each.text for each in found] == completions


def test_paths_are_completed(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("")
    completer = SlashCompleter(["/read"])
    document = Document(f"/read {tmp_path}/no")
    assert [each.text for each in completer.get_completions(document, CompleteEvent())] == [
        "tes.txt"
    ]


@pytest.mark.parametrize(
    ("text", "multiline", "result"),
    [
        ("a", False, (True, "a")),
        ("", False, (True, "")),
        ("a\\", False, (False, "a\n")),
        ('"""', False, (False, '"""\n')),
        ('"""a', False, (False, '"""a\n')),
        ('"""a"""', False, (True, "a")),
        ('"""\na\n"""', False, (True, "a")),
        ("a", True, (False, "a\n")),
        ("a\\", True, (True, "a")),
    ],
)
def test_when_enter_sends(text: str, multiline: bool, result: tuple[bool, str]) -> None:
    assert entered(text, multiline) == result
