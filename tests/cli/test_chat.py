"""Conversations: what is asked of the engine, what a person sees, what is kept."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.cli.fake import FakeSession, Program, Result, finished
from turbodflash_cli import slash
from turbodflash_engine import DoesNotFit, Text

ANSWERS = [[Text(f"answer {n}"), finished()] for n in (1, 2, 3)]


@pytest.fixture
def chat(program: Program) -> Program:
    """A program whose session gives a new answer every time."""
    program.session = FakeSession(*ANSWERS)
    return program


def talk(program: Program, *lines: str, argv: tuple[str, ...] = ()) -> Result:
    """Pipe lines into a chat."""
    return program("-cnv", "--no-show-timings", *argv, stdin="".join(f"{x}\n" for x in lines))


def said(*turns: str, system: str | None = None) -> list[dict[str, str]]:
    """Messages of alternating speakers, the person first."""
    first = [{"role": "system", "content": system}] if system else []
    roles = ("user", "assistant") * len(turns)
    return first + [{"role": r, "content": t} for r, t in zip(roles, turns, strict=False)]


def test_each_line_of_a_pipe_is_a_turn(chat: Program) -> None:
    result = talk(chat, "one", "", "two")
    assert (result.code, result.out, result.err) == (0, "answer 1\nanswer 2\n", "")
    assert chat.session.prompts == [said("one"), said("one", "answer 1", "two")]


def test_a_prompt_may_open_the_chat(chat: Program) -> None:
    talk(chat, "two", argv=("-p", "one", "-sys", "Be brief"))
    assert chat.session.prompts[-1] == said("one", "answer 1", "two", system="Be brief")


def test_a_single_turn_ends_it(chat: Program) -> None:
    assert talk(chat, "one", "two", argv=("-st",)).out == "answer 1\n"


def test_every_answer_has_its_timing_line(chat: Program) -> None:
    result = chat("-cnv", stdin="a\nb\n")
    assert result.err == "\n[ Prompt: 100.0 t/s | Generation: 4.0 t/s ]\n" * 2


def test_lines_may_be_joined(chat: Program) -> None:
    talk(chat, "one\\", "two", '"""', "three\\", "", "four", '"""')
    assert [messages[-1]["content"] for messages in chat.session.prompts] == [
        "one\ntwo",
        "three\\\n\nfour",
    ]


def test_with_multiline_input_a_backslash_sends(chat: Program) -> None:
    talk(chat, "one", "two\\", "three", argv=("-mli",))
    assert [messages[-1]["content"] for messages in chat.session.prompts] == ["one\ntwo", "three"]


@pytest.mark.parametrize("word", ["/exit", "/quit", "/bye", "/EXIT", "/exit now"])
def test_leaving(chat: Program, word: str) -> None:
    result = talk(chat, word, "never read")
    assert (result.code, result.out, chat.session.prompts) == (0, "", [])


def test_an_unknown_command_is_not_sent(chat: Program) -> None:
    result = talk(chat, "/bogus hello", "/glbo")
    assert chat.session.prompts == []
    assert result.err.splitlines() == [
        "error: unknown command '/bogus'.",
        "hint: type /help; to send a message that starts with '/', type '//'",
        "error: unknown command '/glbo'. Did you mean '/glob'?",
        "hint: type /help; to send a message that starts with '/', type '//'",
    ]


def test_two_slashes_send_one(chat: Program) -> None:
    talk(chat, "//etc/hosts")
    assert chat.session.prompts == [said("/etc/hosts")]


def test_help_names_every_command(chat: Program) -> None:
    shown = talk(chat, "/help").err
    assert all(name in shown for name in slash.names())
    assert shown == talk(chat, "/?").err


def test_clear_forgets_all_but_the_system_message(chat: Program) -> None:
    result = talk(chat, "one", "/clear", "two", argv=("-sys", "Be brief"))
    assert chat.session.prompts[-1] == said("two", system="Be brief")
    assert "Chat history cleared." in result.err


def test_undo_drops_an_exchange(chat: Program) -> None:
    result = talk(chat, "one", "two", "/undo", "three", "/clear", "/undo")
    assert chat.session.prompts[-1] == said("one", "answer 1", "three")
    assert "error: there is nothing to undo." in result.err


def test_regenerating_asks_the_same_and_draws_anew(chat: Program) -> None:
    talk(chat, "one", "/regen", "/retry", "two", "/regen", argv=("-s", "7"))
    prompts = chat.session.prompts
    assert prompts[0] == prompts[1] == prompts[2] == said("one")
    assert prompts[3] == prompts[4] == said("one", "answer 3", "two")
    assert [options.attempt for _, options in chat.session.asked] == [0, 1, 2, 0, 1]
    assert {options.sample.seed for _, options in chat.session.asked} == {7}


def test_there_must_be_something_to_regenerate(chat: Program) -> None:
    assert talk(chat, "/regen").err == "error: no message to regenerate.\n"


def test_editing_sends_the_new_text_instead(chat: Program) -> None:
    result = talk(chat, "/edit x", "one", "/edit", "/edit won")
    assert chat.session.prompts[-1] == said("won")
    assert "there is no message to edit" in result.err
    assert "error: there is no line editor here." in result.err


def test_files_go_before_the_next_message(chat: Program, tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt", "c.md"):
        (tmp_path / name).write_text(f"text of {name}\n")
    result = talk(chat, f"/read '{tmp_path / 'c.md'}'", f"/glob {tmp_path}/*.txt", "Compare", "Go")
    first, second = (messages[-1]["content"] for messages in chat.session.prompts)
    assert first == "\n".join(
        f"--- File: {tmp_path / name} ---\ntext of {name}\n" for name in ("c.md", "a.txt", "b.txt")
    ) + ("\nCompare")
    assert second == "Go"
    assert f"Loaded text from '{tmp_path / 'a.txt'}'" in result.err


def test_no_more_than_a_hundred_files(chat: Program, tmp_path: Path) -> None:
    for n in range(101):
        (tmp_path / f"{n:03}.txt").write_text("x")
    result = talk(chat, f"/glob {tmp_path}/**", "x")
    assert result.err.count("Loaded text") == 100
    assert "warning: 101 files match; the first 100 were loaded." in result.err


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("/read", "/read needs a file."),
        ("/read nofile", "file not found: nofile"),
        ("/glob no*file", "no file matches 'no*file'."),
        ("/load nofile", "conversation file not found: nofile"),
        ("/save no/such/file", "cannot write 'no/such/file': No such file or directory."),
        ("/set temp", "/set temp needs a value."),
        ("/set temp hot", "temp takes a number, not 'hot'."),
        ("/set tmep 1", "no setting named 'tmep'"),
        ("/set seed -5", "seed takes a whole number from -1"),
        ("/think maybe", "reasoning takes on, off or auto, not 'maybe'."),
        ("/image x.png", "this build has no multimodal input."),
    ],
)
def test_a_command_that_fails_changes_nothing(chat: Program, line: str, sentence: str) -> None:
    result = talk(chat, line, "go on")
    assert result.err.startswith(f"error: {sentence}")
    assert result.out == "answer 1\n"


def test_settings_hold_from_the_next_answer_on(chat: Program) -> None:
    talk(chat, "a", "/set temp 0.1", "/set --top_k 3", "/set n 5", "/think off", "b")
    before, after = (options for _, options in chat.session.asked)
    assert (before.sample.temp, before.sample.top_k, before.max_tokens) == (0.8, 40, -1)
    assert (after.sample.temp, after.sample.top_k, after.max_tokens) == (0.1, 3, 5)
    assert (before.thinking, after.thinking) == (None, False)


def test_settings_are_shown(chat: Program) -> None:
    lines = [line.split() for line in talk(chat, "/set temp 0.3", "/set").err.splitlines()]
    assert ["temp", "0.3"] in lines
    assert ["reasoning", "auto"] in lines
    assert ["n", "-1"] in lines


def test_the_system_message_can_be_changed(chat: Program) -> None:
    result = talk(chat, "/system", "/system Be loud", "one", "/system Be brief", "two")
    assert chat.session.prompts == [
        said("one", system="Be loud"),
        said("one", "answer 1", "two", system="Be brief"),
    ]
    assert result.err.startswith("No system message.\nSystem message: Be loud\n")


def test_a_conversation_can_be_saved_and_loaded(chat: Program, tmp_path: Path) -> None:
    file = tmp_path / "talk.json"
    talk(chat, "one", f"/save {file}", "/clear", f"/load {file}", "two", argv=("-sys", "Be brief"))
    assert json.loads(file.read_text()) == said("one", "answer 1", system="Be brief")
    assert chat.session.prompts[-1] == said("one", "answer 1", "two", system="Be brief")


@pytest.mark.parametrize("content", ["", "{}", "[1]", '[{"role": "god", "content": "x"}]', "[" * 9])
def test_what_is_no_conversation_is_not_loaded(chat: Program, tmp_path: Path, content: str) -> None:
    file = tmp_path / "talk.json"
    file.write_text(content)
    result = talk(chat, "one", f"/load {file}", "two")
    assert f"error: {str(file)!r} is no conversation." in result.err
    assert chat.session.prompts[-1] == said("one", "answer 1", "two")


def test_statistics_add_up(chat: Program) -> None:
    chat.session.used = 1024
    shown = talk(chat, "a", "b", "/stats", "/context").err
    assert [line.split()[0] for line in shown.splitlines()] == [
        *("answers", "prompt", "100.0", "generation", "4.0", "1024"),
    ]
    assert "20 tokens computed, 0 found in the cache" in shown
    assert "1024 of 4096 tokens (25 %), KV cache 47.7 MiB" in shown


def test_a_failed_turn_is_not_kept(program: Program) -> None:
    too_long = DoesNotFit("the prompt has 631 tokens; the context holds 256.", "use -c 1024")
    program.session = FakeSession(ANSWERS[0], [too_long], ANSWERS[1])
    result = talk(program, "one", "long", "two")
    assert program.session.prompts[-1] == said("one", "answer 1", "two")
    assert result.err.splitlines() == [
        "error: the prompt has 631 tokens; the context holds 256.",
        "hint: use -c 1024",
        "/undo drops the last exchange, /clear starts over.",
    ]
    assert result.code == 1  # a script must learn of it


def test_files_wait_for_a_turn_that_succeeds(program: Program, tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("text")
    program.session = FakeSession([DoesNotFit("no")], ANSWERS[0])
    talk(program, f"/read {file}", "one", "two")
    assert program.session.prompts[-1][-1]["content"].endswith("text\n\ntwo")


def test_ctrl_c_keeps_the_part_that_was_said(program: Program) -> None:
    stopped = [Text("par"), lambda: signal.raise_signal(signal.SIGINT), Text("tial"), Text("no")]
    program.session = FakeSession(stopped, ANSWERS[0])
    result = talk(program, "one", "two")
    assert program.session.prompts[-1] == said("one", "partial", "two")
    assert (result.code, result.out) == (0, "partial\nanswer 1\n")
    assert result.err == "[interrupted]\n"


def test_ctrl_c_before_the_first_word_keeps_nothing(program: Program) -> None:
    from turbodflash_engine import Started

    stopped = [lambda: signal.raise_signal(signal.SIGINT), Started(10, 0, 1), Text("no")]
    program.session = FakeSession(stopped, ANSWERS[0])
    talk(program, "one", "two")
    assert program.session.prompts[-1] == said("two")


def test_a_polite_kill_ends_the_chat_as_well(program: Program) -> None:
    stopped = [Text("par"), lambda: signal.raise_signal(signal.SIGTERM), Text("tial"), Text("no")]
    program.session = FakeSession(stopped, ANSWERS[0])
    result = talk(program, "one", "two")
    assert (result.code, result.out) == (130, "partial\n")


def test_ctrl_c_stops_a_command_but_not_the_chat(
    chat: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*nothing: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("turbodflash_cli.slash.read_text", interrupted)
    assert talk(chat, "/read x", "one").out == "answer 1\n"


def test_a_full_context_is_told(program: Program) -> None:
    end = finished("context", prompt_tokens=4000, new_tokens=96)
    program.session = FakeSession([Text("x"), end])
    assert talk(program, "one").err == "[stopped: context full, 4096 of 4096 tokens]\n"


def test_thoughts_are_kept_apart(program: Program) -> None:
    thinking = [Text("hm", thought=True), Text("42"), finished()]
    program.session = FakeSession(thinking)
    assert talk(program, "one", "two").out == "42\n42\n"
    assert program.session.prompts[-1][1] == {
        "role": "assistant",
        "content": "42",
        "reasoning_content": "hm",
    }


def test_the_transcript_has_everything(chat: Program, tmp_path: Path) -> None:
    file = tmp_path / "said.txt"
    talk(chat, "one", "two", argv=("-o", str(file), "-sys", "Be brief"))
    assert file.read_text() == (
        "System:\nBe brief\n\nUser:\none\n\nAssistant:\nanswer 1\n\n"
        "User:\ntwo\n\nAssistant:\nanswer 2\n"
    )


class TestAtATerminal:
    def test_a_person_gets_a_banner_and_prompts_on_stderr(self, chat: Program) -> None:
        result = chat("--simple-io", stdin="one\n", tty="in out err")
        assert result.out == "answer 1\n"
        lines = result.err.splitlines()
        assert lines[0] == "\x1b[2mmodel: Tiny (llama Q4_1, 93.8 MiB, 30 layers, 134.5 M " + (
            "parameters)\x1b[0m"
        )
        assert lines.index("Type /help for commands, Ctrl-D to leave.") < 6
        assert result.err.count("> ") == 2

    def test_no_banner_in_a_pipe(self, chat: Program) -> None:
        assert talk(chat, "one").err == ""

    def test_a_nearly_full_context_is_shown(self, chat: Program) -> None:
        chat.session.used = 3512
        result = chat("--simple-io", "--color", "off", stdin="", tty="in out err")
        assert "[ctx 3512/4096] > " in result.err
        chat.session.used = 3071
        result = chat("--simple-io", "--color", "off", stdin="", tty="in out err")
        assert "[ctx" not in result.err

    def test_a_failed_turn_is_no_failed_chat(self, program: Program) -> None:
        program.session = FakeSession([DoesNotFit("no")])
        assert program("--simple-io", stdin="x\n", tty="in err").code == 0

    def test_two_ctrl_c_leave(self, chat: Program, monkeypatch: pytest.MonkeyPatch) -> None:
        keys = iter([KeyboardInterrupt, "hello", KeyboardInterrupt, KeyboardInterrupt])

        def read(reader: object, prompt: str, offered: str = "") -> str:
            key = next(keys)
            if key is KeyboardInterrupt:
                raise KeyboardInterrupt
            return str(key)

        monkeypatch.setattr("turbodflash_cli.reader.PlainReader.read", read)
        result = chat("--simple-io", tty="in err")
        assert (result.code, result.out) == (0, "answer 1\n")
        assert result.err.count("(Ctrl-C again or Ctrl-D to exit)") == 2
