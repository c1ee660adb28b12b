"""Every option: what it reads, what it refuses, where it ends up."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cli.fake import FakeSession, Program
from turbodflash_cli import settings as chat_settings
from turbodflash_cli.app import main
from turbodflash_cli.argv import ROOT
from turbodflash_cli.flags import (
    ComputeFlags,
    ContextFlags,
    DraftFlags,
    Flag,
    ModelFlags,
    NgramFlags,
    OutputFlags,
    PromptFlags,
    ReasoningFlags,
    SamplingFlags,
    flags_of,
)
from turbodflash_cli.flags.values import text
from turbodflash_cli.program import GRAMMARS
from turbodflash_engine import EVERY_LAYER, BadUsage, SampleOptions, SayOptions

GROUPS = (
    ModelFlags,
    DraftFlags,
    PromptFlags,
    SamplingFlags,
    ContextFlags,
    ComputeFlags,
    ReasoningFlags,
    OutputFlags,
    NgramFlags,
)
FLAGS = [(name, flag) for group in GROUPS for name, flag in flags_of(group)]
SWITCHES = [(name, flag) for name, flag in FLAGS if not flag.takes_value]

READ: dict[str, list[tuple[str, Any]]] = {
    # field: (written, what it means)
    "model": [("a b.gguf", Path("a b.gguf"))],
    "hf_repo": [("user/repo:q4_0", "user/repo:q4_0")],
    "hf_file": [("x.gguf", "x.gguf")],
    "hf_token": [("hf_x", "hf_x")],
    "draft_model": [("d.gguf", Path("d.gguf"))],
    "draft_hf_repo": [("user/draft", "user/draft")],
    "spec_type": [
        ("draft-dflash", ("draft-dflash",)),
        ("NGRAM-mod, none,", ("ngram-mod", "none")),
    ],
    "n_max": [("16", 16), ("0", 0)],
    "n_min": [("3", 3)],
    "p_min": [("0.75", 0.75), ("0", 0.0)],
    "width": [("auto", -1), ("-1", -1), ("8", 8), ("0", 0)],
    "tree": [("16", 16)],
    "inject": [("deferred", "deferred"), ("1", "deferred"), ("0", "immediate"), ("AUTO", "auto")],
    "draft_context": [("0", 0), ("4k", 4096)],
    "draft_threads": [("-1", -1), ("2", 2)],
    "draft_threads_batch": [("4", 4)],
    "draft_gpu_layers": [("auto", -1), ("0", 0), ("all", EVERY_LAYER), ("99", 99)],
    "draft_device": [("none", "cpu"), ("gpu", "gpu"), ("cuda:1", "gpu:1")],
    "draft_cache_type_k": [("f16", "f16")],
    "draft_cache_type_v": [("F32", "f32")],
    "synth_len": [("4", 4.0), ("1.5", 1.5)],
    "synth_rates": [("0.8,0.5", (0.8, 0.5)), ("1", (1.0,))],
    **{name: [("3", 3)] for name, _ in flags_of(NgramFlags)},
    "prompt": [("-n", "-n"), ("", "")],
    "file": [("-", Path("-"))],
    "max_tokens": [("-1", -1), ("-2", -2), ("0", 0), ("256", 256)],
    "system": [("Be brief", "Be brief")],
    "system_file": [("s.txt", Path("s.txt"))],
    "reverse_prompt": [("END", "END")],
    "chat_template": [("chatml", "chatml")],
    "chat_template_file": [("t.jinja", Path("t.jinja"))],
    "chat_template_kwargs": [('{"enable_thinking": false}', {"enable_thinking": False})],
    "seed": [("-1", -1), ("0", 0), ("4294967295", 2**32 - 1)],
    "temp": [("0", 0.0), ("-1", 0.0), ("0.7", 0.7), ("1e-2", 0.01)],
    "top_k": [("40", 40), ("0", 0), ("-1", -1)],
    "top_p": [("0.9", 0.9), ("1", 1.0)],
    "min_p": [("0", 0.0)],
    "samplers": [("top-k;temp", ("top_k", "temperature")), ("topk;nucleus;", ("top_k", "top_p"))],
    "sampler_seq": [("kt", ("top_k", "temperature"))],
    "repeat_penalty": [("1.1", 1.1)],
    "repeat_last_n": [("-1", -1), ("64", 64)],
    "presence_penalty": [("-0.5", -0.5)],
    "frequency_penalty": [("0.5", 0.5)],
    "dry_multiplier": [("0.8", 0.8)],
    "dry_base": [("1.75", 1.75)],
    "dry_allowed_length": [("2", 2)],
    "dry_penalty_last_n": [("-1", -1)],
    "dry_sequence_breakers": [("none", "none"), (r"\n", "\n")],
    "xtc_probability": [("0.5", 0.5)],
    "xtc_threshold": [("0.1", 0.1)],
    "typical_p": [("0.9", 0.9)],
    "top_n_sigma": [("-1", -1.0)],
    "dynatemp_range": [("0.2", 0.2)],
    "dynatemp_exp": [("1", 1.0)],
    "mirostat": [("2", 2)],
    "mirostat_lr": [("0.1", 0.1)],
    "mirostat_ent": [("5", 5.0)],
    "logit_bias": [("15043+1", (15043, 1.0)), ("7-0.5", (7, -0.5)), ("7-inf", (7, -math.inf))],
    "context": [("0", 0), ("4096", 4096), ("4k", 4096), ("32K", 32768)],
    "cache_type_k": [("f16", "f16"), ("F32", "f32"), ("q8_0", "q8_0")],
    "cache_type_v": [("f32", "f32"), ("Turbo4", "turbo4"), ("iq4_nl", "iq4_nl")],
    "kv_rotate": [("on", "on"), ("OFF", "off"), ("auto", "auto")],
    "kv_protect": [("none", "none"), ("auto", "auto"), ("boundary", "boundary")],
    "batch": [("1", 1)],
    "ubatch": [("512", 512)],
    "keep": [("0", 0), ("-1", -1), ("256", 256)],
    "prompt_cache": [("kept.bin", Path("kept.bin"))],
    "fit": [("on", "on"), ("off", "off")],
    "parallel": [("1", 1)],
    "flash_attn": [("on", "on"), ("1", "on"), ("false", "off"), ("-1", "auto")],
    "rope_scaling": [("yarn", "yarn"), ("NONE", "none")],
    "rope_scale": [("4", 4.0)],
    "rope_freq_base": [("1e6", 1e6)],
    "rope_freq_scale": [("0.25", 0.25)],
    "yarn_orig_ctx": [("0", 0), ("8192", 8192)],
    "threads": [("-1", -1), ("0", 0), ("8", 8)],
    "threads_batch": [("4", 4)],
    "gpu_layers": [("auto", -1), ("-1", -1), ("0", 0), ("ALL", EVERY_LAYER), ("99", 99)],
    "device": [
        *(("none", "cpu"), ("cpu", "cpu"), ("reference", "reference"), ("auto", "auto")),
        *(("gpu", "gpu"), ("cuda", "gpu"), ("CUDA0", "gpu:0"), ("gpu:12", "gpu:12")),
    ],
    "reasoning": [("ON", "on"), ("0", "off"), ("auto", "auto")],
    "reasoning_format": [("deepseek", "deepseek"), ("none", "none")],
    "reasoning_effort": [("low", "low")],
    "budget": [("0", 0), ("-1", -1), ("512", 512)],
    "budget_message": [("Enough.", "Enough.")],
    "timings_json": [("t.json", Path("t.json"))],
    "output": [("o.txt", Path("o.txt"))],
    "color": [("enabled", "on"), ("off", "off")],
    "verbosity": [("4", 4)],
}

REFUSED = [
    (["-n", "abc"], "-n takes a whole number, not 'abc'."),
    (["-n", "1.5"], "-n takes a whole number, not '1.5'."),
    (["--predict", "-3"], "--predict takes a whole number of at least -2, not -3."),
    (["-n", "9" * 5000], "-n takes a whole number, not '999"),
    (["-c", "-1"], "-c takes a whole number of at least 0, not -1."),
    (["-c", "4m"], "-c takes a whole number, not '4m'."),
    (["-c", "k"], "-c takes a whole number, not 'k'."),
    (["-n", "4k"], "-n takes a whole number, not '4k'."),
    (["-b", "0"], "-b takes a whole number of at least 1, not 0."),
    (["-np", "2"], "-np 2 is not supported; one sequence is decoded at a time."),
    (["--cache-type-v", "q3_0"], "unknown cache type 'q3_0' for --cache-type-v."),
    (["--kv-rotate", "yes"], "--kv-rotate takes auto, on or off, not 'yes'"),
    (["--kv-protect", "on"], "--kv-protect takes none, auto or boundary, not 'on'"),
    (["--cache-type-k", "turbo5"], "unknown cache type 'turbo5' for --cache-type-k."),
    (["-fa", "maybe"], "-fa takes on, off or auto, not 'maybe'."),
    (["--rope-scaling", "cubic"], "--rope-scaling takes none, linear or yarn, not 'cubic'."),
    (["--rope-scale", "0"], "--rope-scale takes a number above 0, not 0."),
    (["--gpu-layers", "some"], "--gpu-layers takes auto, all or a whole number, not 'some'."),
    (["-ngl", "-3"], "-ngl takes auto, all or a whole number, not '-3'."),
    (["-dev", "ROCm0"], "-dev takes auto, cpu, gpu, gpu:0 or reference, not 'ROCm0'."),
    (
        ["-dev", "CUDA0,CUDA1"],
        "-dev takes auto, cpu, gpu, gpu:0 or reference, not 'CUDA0,CUDA1': o",
    ),
    (["-dev", "cpu", "-ngl", "7"], "7 layers are asked for on a card, but the device is the CPU"),
    (["--spec-type", "dflash"], "no type of drafting named 'dflash'"),
    (["--spec-type", ","], "--spec-type takes types of drafting, not ','."),
    (["--spec-draft-n-max", "-1"], "--spec-draft-n-max takes a whole number of at least 0, not"),
    (["--spec-draft-n-min", "-1"], "--spec-draft-n-min takes a whole number of at least 0, not"),
    (["--spec-draft-p-min", "1.5"], "--spec-draft-p-min takes a number from 0 to 1, not 1.5."),
    (["--spec-width", "wide"], "--spec-width takes auto or a whole number, not 'wide'."),
    (["--spec-width", "-2"], "--spec-width takes auto or a whole number, not '-2'."),
    (["--spec-tree", "-1"], "--spec-tree takes a whole number of at least 0, not -1."),
    (["--dflash-inject", "2"], "--dflash-inject takes auto, deferred or immediate, not '2'."),
    (["-cd", "-1"], "-cd takes a whole number of at least 0, not -1."),
    (["-ctkd", "q9_0"], "unknown cache type 'q9_0' for -ctkd."),
    (["-ngld", "-3"], "-ngld takes auto, all or a whole number, not '-3'."),
    (["-devd", "gpu:x"], "-devd takes auto, cpu, gpu, gpu:0 or reference, not 'gpu:x'."),
    (["--spec-synth-len", "0.5"], "--spec-synth-len takes a number of at least 1, not 0.5."),
    (["--spec-synth-rates", "0.5,x"], "--spec-synth-rates takes a number, not 'x'."),
    (["--spec-synth-rates", "0.5,0.6"], "--spec-synth-rates 0.5,0.6: a rate is larger than the"),
    (["--spec-ngram-mod-n-max", "0"], "--spec-ngram-mod-n-max takes a whole number from 1 to 1024"),
    (["-s", "-2"], "-s takes a whole number from -1 to 4294967295, not -2."),
    (["--temp", "nan"], "--temp takes a number, not 'nan'."),
    (["--temp", "inf"], "--temp takes a number, not 'inf'."),
    (["--temp", "hot"], "--temp takes a number, not 'hot'."),
    (["--top-p", "-0.1"], "--top-p takes a number of at least 0, not -0.1."),
    (["--repeat-penalty", "0"], "--repeat-penalty takes a number above 0, not 0."),
    (["--xtc-probability", "2"], "--xtc-probability takes a number from 0 to 1, not 2."),
    (["--mirostat", "3"], "--mirostat takes a whole number from 0 to 2, not 3."),
    (["--samplers", "top_q"], "no sampler named 'top_q'"),
    (["--sampler-seq", "kz"], "--sampler-seq has no sampler 'z'."),
    (["-l", "15043"], "-l takes ID+BIAS or ID-BIAS, such as 15043+1, not '15043'."),
    (["-l", "1+x"], "-l takes a number, not '+x'."),
    (["--reasoning", "maybe"], "--reasoning takes on, off or auto, not 'maybe'."),
    (["--reasoning-budget", "-2"], "--reasoning-budget"),
    (["--reasoning-format", "x"], "--reasoning-format takes none, deepseek, deepseek-legacy or"),
    (["--chat-template-kwargs", "{x}"], "--chat-template-kwargs is not valid JSON (line 1, col"),
    (["--chat-template-kwargs", "[1]"], "--chat-template-kwargs takes a JSON object"),
    (["--chat-template-kwargs", "@no"], "--chat-template-kwargs: cannot read 'no'."),
    (["-r", "a\udcff"], "the value of -r is not UTF-8 text."),
    (["-m", ""], "-m takes a path, not ''."),
]


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Runs the program up to the point where it would work; gives the groups it got."""
    got: list[Any] = []

    def run(*groups: Any) -> int:
        got[:] = groups[1:]
        return 0

    monkeypatch.setattr("turbodflash_cli.run.run", run)

    def parse(*argv: str) -> Any:
        assert main(list(argv)) == 0
        return {name: getattr(g, name) for g in got for name, _ in flags_of(type(g))}

    return parse


@pytest.mark.parametrize(("name", "flag"), FLAGS, ids=[name for name, _ in FLAGS])
def test_every_option_is_read(name: str, flag: Flag, parsed: Callable[..., Any]) -> None:
    cases = READ[name] if flag.takes_value else [("", True)]
    for written, meant in cases:
        for spelling in (*flag.names, *flag.former):
            argv = [spelling, written] if flag.takes_value else [spelling]
            wanted = (meant,) if flag.many else meant
            assert parsed(*argv)[name] == wanted
    for spelling in flag.off:
        assert parsed(spelling)[name] is False


def test_values_of_a_repeatable_option_add_up(parsed: Callable[..., Any]) -> None:
    assert parsed("-r", "a", "-r", "b")["reverse_prompt"] == ("a", "b")


def test_of_an_option_given_twice_the_last_counts(parsed: Callable[..., Any]) -> None:
    assert parsed("--temp", "1", "--temp", "2")["temp"] == 2.0


def test_without_options_nothing_is_set(parsed: Callable[..., Any]) -> None:
    assert {n: v for n, v in parsed().items() if v not in (None, (), False)} == {
        "warmup": True,
        "graphs": True,
        "history": True,
        "jinja": True,
        "show_timings": True,
    }


def test_json_may_lie_in_a_file(parsed: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "v.json"
    file.write_text('{"a": 1}')
    assert parsed("--chat-template-kwargs", f"@{file}")["chat_template_kwargs"] == {"a": 1}


@pytest.mark.parametrize(("argv", "sentence"), REFUSED, ids=[" ".join(a)[:30] for a, _ in REFUSED])
def test_what_is_refused(program: Program, argv: list[str], sentence: str) -> None:
    result = program("-p", "hi", *argv)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(f"error: {sentence}")
    assert "Traceback" not in result.err
    assert program.opened == []


class TestEnvironment:
    @pytest.mark.parametrize(
        ("name", "flag"), [(n, f) for n, f in FLAGS if f.env], ids=lambda each: str(each)[:20]
    )
    def test_every_variable_is_read(
        self,
        name: str,
        flag: Flag,
        parsed: Callable[..., Any],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        written, meant = READ[name][0] if flag.takes_value else ("1", True)
        for variable in flag.variables:
            with monkeypatch.context() as alone:
                alone.setenv(variable, written)
                assert parsed()[name] == ((meant,) if flag.many else meant)

    def test_the_option_beats_the_variable_and_says_so(
        self, program: Program, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("LLAMA_ARG_CTX_SIZE", "512")
        result = program("-p", "hi", "-c", "1024")
        assert program.opened[0].context == 1024
        assert result.err.startswith(
            "warning: LLAMA_ARG_CTX_SIZE environment variable is set, "
            "but will be overwritten by command line argument -c\n"
        )

    def test_file_then_variable_then_option(
        self, program: Program, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        defaults = SampleOptions(temp=0.3, top_k=7, min_p=0.2)
        program.session = FakeSession(sample_defaults=defaults)
        monkeypatch.setenv("LLAMA_ARG_TOP_K", "9")
        monkeypatch.setenv("LLAMA_ARG_MIN_P", "0.15")
        program("-p", "hi", "--min-p", "0.1")
        sample = program.session.asked[0][1].sample
        assert sample == SampleOptions(temp=0.3, top_k=9, min_p=0.1)

    def test_a_bad_variable_is_named(
        self, program: Program, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("LLAMA_ARG_THREADS", "two")
        result = program("-p", "hi")
        assert (result.code, result.err) == (
            2,
            "error: LLAMA_ARG_THREADS takes a whole number, not 'two'.\n",
        )

    @pytest.mark.parametrize(("value", "meant"), [("off", False), ("enabled", True), ("0", False)])
    def test_of_a_switch(
        self,
        parsed: Callable[..., Any],
        monkeypatch: pytest.MonkeyPatch,
        value: str,
        meant: bool,
    ) -> None:
        monkeypatch.setenv("LLAMA_ARG_SHOW_TIMINGS", value)
        assert parsed()["show_timings"] is meant

    def test_the_negative_one_switches_off_by_being_there(
        self, parsed: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("LLAMA_ARG_NO_SHOW_TIMINGS", "")
        assert parsed()["show_timings"] is False

    def test_does_not_disturb_other_commands(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("LLAMA_ARG_N_GPU_LAYERS", "99")
        assert main(["inspect", "--help"]) == 0
        assert main(["inspect", "no.gguf"]) == 2
        assert "GPU" not in capsys.readouterr().err


def test_loading_options(program: Program) -> None:
    program(
        *("-p", "hi", "-m", "x.gguf", "-c", "4k", "-t", "-1", "-tb", "3", "-b", "64", "-ub", "32"),
        *("-ctk", "f32", "-ctv", "f16", "-dev", "reference", "--rope-scaling", "yarn"),
        *("--rope-scale", "4", "--rope-freq-base", "1e6", "--rope-freq-scale", "0.5"),
        *("--yarn-orig-ctx", "2048", "--no-warmup"),
    )
    [opened] = program.opened
    assert (opened.model, opened.context, opened.threads) == (Path("x.gguf"), 4096, 0)
    assert (opened.threads_batch, opened.batch, opened.ubatch) == (3, 64, 32)
    assert (opened.cache_type_k, opened.cache_type_v, opened.device) == ("f32", "f16", "reference")
    assert (opened.rope_scaling, opened.rope_scale, opened.rope_freq_base) == ("yarn", 4.0, 1e6)
    assert (opened.rope_freq_scale, opened.yarn_orig_ctx, opened.warmup) == (0.5, 2048, False)


def test_where_it_computes(program: Program) -> None:
    program("-p", "hi", "-m", "x.gguf", "-ngl", "20", "-dev", "CUDA1", "--no-graphs")
    program("-p", "hi", "-m", "x.gguf", "-ngl", "auto")
    asked, auto = program.opened
    assert (asked.gpu_layers, asked.device, asked.graphs) == (20, "gpu:1", False)
    assert (auto.gpu_layers, auto.device, auto.graphs) == (None, "auto", True)


def test_sampling_options(program: Program) -> None:
    program(
        *("-p", "hi", "-s", "42", "--temp", "0", "--top-k", "1", "-n", "-2", "--ignore-eos"),
        *("--dry-sequence-breaker", "none", "--sampler-seq", "kt", "-l", "5+1", "-l", "6-1"),
    )
    options = program.session.asked[0][1]
    sample = options.sample
    assert (options.max_tokens, sample.seed, sample.temp, sample.top_k) == (-2, 42, 0.0, 1)
    assert (sample.ignore_eos, sample.dry_sequence_breakers) == (True, ())
    assert sample.samplers == ("top_k", "temperature")
    assert sample.logit_bias == ((5, 1.0), (6, -1.0))


def test_every_sampling_field_is_one_of_the_engines() -> None:
    ours = {name for name, _ in flags_of(SamplingFlags)} - {"sampler_seq"}
    assert ours == set(SampleOptions.__dataclass_fields__)


@pytest.mark.parametrize("name", chat_settings.NAMES)
def test_every_setting_of_a_chat_can_be_set_to_what_it_shows(name: str) -> None:
    shown = dict(chat_settings.current(SayOptions()))
    if name in shown:
        changed = chat_settings.change(SayOptions(), name, shown[name])
        assert changed == SayOptions()
    else:
        with pytest.raises(BadUsage):
            chat_settings.change(SayOptions(), name, "not a value")


NAMES = sorted(GRAMMARS[ROOT].flags) if GRAMMARS[ROOT] else []


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.one_of(st.sampled_from(NAMES), st.text(max_size=6)), max_size=6))
def test_any_command_line_ends_well(argv: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("turbodflash_cli.run.run", lambda *groups: 0)
        patched.setattr("turbodflash_cli.models.app", None)
        assert main(argv) in (0, 2)


def test_words_that_the_locale_could_not_read_are_utf_8() -> None:
    misread = "Répète ✓".encode().decode("ascii", "surrogateescape")
    assert text("-p", misread) == "Répète ✓"
