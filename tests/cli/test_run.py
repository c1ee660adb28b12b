"""One prompt, one answer: what is written where, and how it ends."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.fake import FakeSession, Program, finished, hello
from turbodflash_engine import BadModel, DoesNotFit, Progress, Started, Text

TIMINGS = "\n[ Prompt: 100.0 t/s | Generation: 4.0 t/s ]\n"


def test_text_goes_to_stdout_and_the_timing_line_to_stderr(program: Program) -> None:
    result = program("-p", "hi")
    assert (result.code, result.out, result.err) == (0, "Hello\n", TIMINGS)
    assert program.session.prompts == [[{"role": "user", "content": "hi"}]]


def test_a_newline_is_added_only_where_it_is_missing(program: Program) -> None:
    program.session = FakeSession([Text("Hi\n"), finished()])
    assert program("-p", "hi").out == "Hi\n"


def test_speed_without_time_is_zero(program: Program) -> None:
    nothing = finished(prompt_tokens=0, new_tokens=0, prefill_seconds=0.0, decode_seconds=0.0)
    program.session = FakeSession([nothing])
    assert program("-p", "hi").err == "\n[ Prompt: 0.0 t/s | Generation: 0.0 t/s ]\n"


def test_timings_can_be_hidden(program: Program) -> None:
    assert program("-p", "hi", "--no-show-timings").err == ""


def test_raw_completion_leaves_the_bytes_as_they_are(program: Program) -> None:
    result = program("-p", "Once", "-no-cnv")
    assert result.out == "Hello"
    assert program.session.prompts == ["Once"]


def test_raw_completion_on_a_terminal_ends_the_line(program: Program) -> None:
    assert program("-p", "Once", "-no-cnv", tty="out").out == "Hello\n"


def test_a_model_without_a_template_completes(program: Program) -> None:
    program.session = FakeSession(has_template=False)
    assert program("-p", "Once").out == "Hello"
    assert program.session.prompts == ["Once"]


def test_a_chat_without_a_template_is_warned_about(program: Program) -> None:
    program.session = FakeSession(has_template=False)
    result = program("-p", "hi", "-cnv", "-st")
    assert result.err.startswith("warning: the model has no chat template; using ChatML.")
    assert program.session.prompts == [[{"role": "user", "content": "hi"}]]


def test_the_system_message_stands_first(program: Program) -> None:
    program("-p", "hi", "-sys", "Be brief")
    assert program.session.prompts[0][0] == {"role": "system", "content": "Be brief"}


def test_the_prompt_is_printed_on_request(program: Program) -> None:
    assert program("-p", "hi", "--display-prompt").out == "hi\nHello\n"
    assert program("-p", "Once ", "--display-prompt", "-no-cnv").out == "Once Hello"


def test_json_is_one_object_and_nothing_else(program: Program) -> None:
    program.session = FakeSession([Text("hm", thought=True), *hello()])
    result = program("-p", "hi", "--json")
    record = json.loads(result.out)
    assert result.out.count("\n") == 1
    assert (record["text"], record["reasoning"]) == ("Hello", "hm")
    assert (record["finish_reason"], record["seed"], record["draft"]) == ("stop", 42, None)
    assert record["timings"] == {
        "cache_n": 0,
        "prompt_n": 10,
        "prompt_ms": 100.0,
        "prompt_per_token_ms": 10.0,
        "prompt_per_second": 100.0,
        "predicted_n": 3,
        "predicted_ms": 500.0,
        "predicted_per_token_ms": pytest.approx(500 / 3),
        "predicted_per_second": 4.0,
    }


def test_timings_and_transcript_go_to_files(program: Program, tmp_path: Path) -> None:
    numbers, said = tmp_path / "t.json", tmp_path / "said.txt"
    program("-p", "hi", "--timings-json", str(numbers), "-o", str(said))
    assert json.loads(numbers.read_text())["predicted_n"] == 3
    assert said.read_text() == "User:\nhi\n\nAssistant:\nHello\n"


def test_a_file_that_cannot_be_written_is_a_usage_error(program: Program, tmp_path: Path) -> None:
    result = program("-p", "hi", "-o", str(tmp_path / "no" / "file"))
    assert result.code == 2
    assert "error: -o: cannot write" in result.err


def test_cached_tokens_are_not_counted_as_work(program: Program) -> None:
    program.session = FakeSession([Text("x"), finished(cached_tokens=6)])
    assert "Prompt: 40.0 t/s" in program("-p", "hi").err
    assert json.loads(program("-p", "hi", "--json").out)["timings"]["prompt_n"] == 4


class TestThoughts:
    script = (Text("let me see", thought=True), Text("42"), finished())

    def test_are_dropped_in_a_pipe(self, program: Program) -> None:
        program.session = FakeSession(self.script)
        assert program("-p", "hi").out == "42\n"

    def test_are_marked_on_a_terminal(self, program: Program) -> None:
        program.session = FakeSession(self.script)
        result = program("-p", "hi", "--color", "off", tty="out")
        assert result.out == "[Start thinking]\nlet me see\n[End thinking]\n\n42\n"

    def test_are_faint_where_colours_are(self, program: Program) -> None:
        program.session = FakeSession(self.script)
        result = program("-p", "hi", tty="out")
        assert result.out == ("\x1b[2m[Start thinking]\nlet me see\n[End thinking]\n\n\x1b[0m42\n")

    def test_are_shown_in_a_pipe_on_request(self, program: Program) -> None:
        program.session = FakeSession(self.script)
        assert program("-p", "hi", "--show-thinking").out.startswith("[Start thinking]\n")

    def test_stay_in_the_text_without_a_format(self, program: Program) -> None:
        program("-p", "hi")
        program("-p", "hi", "--reasoning-format", "deepseek")
        program("-p", "hi", "--reasoning-format", "none")
        said = [options.split_thoughts for _, options in program.session.asked]
        assert said == [True, True, False]

    def test_that_never_end_are_closed(self, program: Program) -> None:
        program.session = FakeSession([Text("hm", thought=True), finished("length")])
        result = program("-p", "hi", "--show-thinking")
        assert result.out == "[Start thinking]\nhm\n[End thinking]\n\n"


class TestControlCharacters:
    script = (Text("a\x1b]0;title\x07b\x9b2Jc\r\td\n"), finished())

    def test_are_stripped_on_a_terminal(self, program: Program) -> None:
        program.session = FakeSession(self.script)
        assert program("-p", "hi", tty="out").out == "a]0;titleb2Jc\td\n"

    def test_are_kept_in_a_pipe(self, program: Program) -> None:
        program.session = FakeSession(self.script)
        assert program("-p", "hi").out == "a\x1b]0;title\x07b\x9b2Jc\r\td\n"


class TestVerbose:
    def test_tells_model_seed_and_reason(self, program: Program) -> None:
        program.session = FakeSession(hello(), sample_keys=("general.sampling.temp",))
        result = program("-p", "hi", "-v")
        assert result.out == "Hello\n"
        for part in ("Tiny (llama Q4_1, 93.8 MiB", "cpu avx2, 2 threads", "seed: 42"):
            assert part in result.err
        assert "sampling defaults from the file: general.sampling.temp" in result.err
        assert "ended by: stop" in result.err

    def test_the_level_four_is_the_same(self, program: Program) -> None:
        assert program("-p", "hi", "-lv", "4").err == program("-p", "hi", "-v").err

    def test_level_three_is_not(self, program: Program) -> None:
        assert program("-p", "hi", "-lv", "3").err == TIMINGS


def test_notes_of_the_model_are_warnings(program: Program) -> None:
    program.session = FakeSession(hello(), notes=("-c 131072 is beyond the 8192 tokens",))
    assert program("-p", "hi").err.startswith("warning: -c 131072 is beyond the 8192 tokens\n")


def test_a_full_context_is_told_and_is_success(program: Program) -> None:
    end = finished("context", prompt_tokens=4000, new_tokens=96)
    program.session = FakeSession([Text("x"), end])
    result = program("-p", "hi")
    assert result.code == 0
    assert "[stopped: context full, 4096 of 4096 tokens]\n" in result.err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DoesNotFit("the prompt has 631 tokens; the context holds 256", "use -c 1024."), 1),
        (BadModel("'x.gguf' is empty (0 bytes).", "download it again"), 3),
    ],
)
def test_errors_are_two_lines_on_stderr(
    program: Program, error: DoesNotFit | BadModel, code: int
) -> None:
    program.session = FakeSession([error])
    result = program("-p", "hi")
    assert (result.code, result.out) == (code, "")
    sentence, hint = str(error).rstrip("."), error.hint.rstrip(".")
    assert result.err == f"error: {sentence}.\nhint: {hint}\n"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("it starts with 'hell'", "it starts with 'hell'."),
        ("the file is empty (0 bytes).", "the file is empty (0 bytes)."),
        ("model file not found: no/model.gguf", "model file not found: no/model.gguf"),
        ("model file not found: no\\model", "model file not found: no\\model"),
    ],
)
def test_an_error_is_a_sentence_but_a_path_can_be_copied(
    program: Program, said: str, shown: str
) -> None:
    program.session = FakeSession([BadModel(said)])
    assert program("-p", "hi").err == f"error: {shown}\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("inspect",), "missing argument 'FILE'."),
        (("models", "frob"), "no such command 'frob'."),
    ],
)
def test_a_slip_that_the_parser_finds_reads_like_ours(
    program: Program, words: tuple[str, ...], sentence: str
) -> None:
    result = program(*words)
    assert (result.code, result.err) == (2, f"error: {sentence}\nhint: turbodflash -h\n")


class TestInterrupt:
    @pytest.fixture(autouse=True)
    def _heard(self) -> Iterator[None]:
        """Ctrl-C is heard, though a shell starts what runs in its background deaf to it."""
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        yield
        signal.signal(signal.SIGINT, before)

    def interrupt(self) -> None:
        signal.raise_signal(signal.SIGINT)

    def test_stops_after_the_step_and_keeps_what_was_said(self, program: Program) -> None:
        script = [Started(10, 0, 42), Text("Hel"), self.interrupt, Text("lo"), Text("no")]
        program.session = FakeSession(script)
        result = program("-p", "hi")
        assert (result.code, result.out) == (130, "Hello\n")
        assert result.err == TIMINGS

    def test_a_polite_kill_does_the_same(self, program: Program) -> None:
        script = [Text("Hel"), lambda: signal.raise_signal(signal.SIGTERM), Text("lo"), Text("no")]
        program.session = FakeSession(script)
        assert (program("-p", "hi").code, program.session.last) == (130, finished("interrupted"))

    def test_while_loading_ends_at_once(
        self, program: Program, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def load(options: object, progress: object) -> None:
            self.interrupt()

        monkeypatch.setattr("turbodflash_cli.run.open_model", load)
        result = program("-p", "hi")
        assert (result.code, result.out, result.err) == (130, "", "")

    def test_json_says_why(self, program: Program) -> None:
        program.session = FakeSession([Text("a"), self.interrupt, Text("b"), Text("c")])
        result = program("-p", "hi", "--json")
        assert result.code == 130
        assert json.loads(result.out)["finish_reason"] == "interrupted"


def test_a_closed_pipe_ends_quietly(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(stream: object, text: str) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("turbodflash_cli.terminal._put", broken)
    result = program("-p", "hi")
    assert (result.code, result.err) == (141, "")


class TestAsText:
    def test_a_bug_of_ours_is_one_line(self, program: Program) -> None:
        program.session = FakeSession([RuntimeError("boom [/x]")])
        result = program("-p", "hi")
        assert result.code == 1
        assert result.err == (
            "error: internal error: RuntimeError: boom [/x]\n"
            "hint: run again with -v and report it\n"
        )

    def test_and_a_trace_on_request(self, program: Program) -> None:
        program.session = FakeSession([RuntimeError("boom")])
        assert "Traceback" in program("-p", "hi", "-v").err


class TestColour:
    @pytest.mark.parametrize(
        ("environment", "argv", "tty", "coloured"),
        [
            ({}, [], "err", True),
            ({}, [], "", False),
            ({"NO_COLOR": "1"}, [], "err", False),
            ({"NO_COLOR": ""}, [], "err", True),
            ({"FORCE_COLOR": "1"}, [], "", True),
            ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, [], "err", False),
            ({"NO_COLOR": "1"}, ["--color", "on"], "", True),
            ({"TERM": "dumb"}, [], "err", False),
            ({}, ["--color", "off"], "err", False),
            ({}, ["-co", "auto"], "err", True),
        ],
    )
    def test_is_decided_per_stream(
        self,
        program: Program,
        monkeypatch: pytest.MonkeyPatch,
        environment: dict[str, str],
        argv: list[str],
        tty: str,
        coloured: bool,
    ) -> None:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        program.session = FakeSession([BadModel("bad")])
        result = program("-p", "hi", *argv, tty=tty)
        assert result.err == ("\x1b[31merror:\x1b[0m bad.\n" if coloured else "error: bad.\n")


def test_long_prompts_draw_no_bar_in_a_pipe(program: Program) -> None:
    program.session = FakeSession([Progress("prompt", 512, 2048, "tokens"), *hello()])
    assert program("-p", "hi").err == TIMINGS


def test_thinking_is_asked_for_by_flag_or_environment(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    program("-p", "hi")
    program("-p", "hi", "--reasoning", "on", "--reasoning-effort", "low")
    monkeypatch.setenv("LLAMA_SPEC_NO_THINK", "1")
    told = program("-p", "hi", "-v")
    program("-p", "hi", "--reasoning", "auto")
    asked = [options for _, options in program.session.asked]
    assert [options.thinking for options in asked] == [None, True, False, None]
    assert asked[1].template_kwargs == {"reasoning_effort": "low"}
    assert "LLAMA_SPEC_NO_THINK is set" in told.err


def test_a_budget_of_thoughts_and_what_ends_them_are_handed_on(program: Program) -> None:
    program("-p", "hi", "--reasoning-budget", "64", "--reasoning-budget-message", "Enough.")
    program("-p", "hi")
    first, second = (options for _, options in program.session.asked)
    assert (first.thought_budget, first.budget_message) == (64, "Enough.")
    assert (second.thought_budget, second.budget_message) == (-1, "")


def test_the_files_sampling_defaults_hold_where_no_flag_speaks(program: Program) -> None:
    from dataclasses import replace

    defaults = replace(FakeSession().info.sample_defaults, temp=0.3, top_k=7)
    program.session = FakeSession(sample_defaults=defaults)
    program("-p", "hi", "--temp", "0.5")
    sample = program.session.asked[0][1].sample
    assert (sample.temp, sample.top_k, sample.top_p) == (0.5, 7, 0.95)
