"""Groups read without typer are those that typer would give."""

from __future__ import annotations

from typing import Any

import pytest
import typer

from tests.cli.fake import Program
from tests.cli.test_help import loaded_after
from turbodflash_cli.argv import scan
from turbodflash_cli.commands import FlagCommand, Invocation, flagged
from turbodflash_cli.filling import filled
from turbodflash_cli.flags import ComputeFlags, PromptFlags, SamplingFlags
from turbodflash_cli.program import GRAMMARS
from turbodflash_cli.terminal import Terminal

GROUPS = (PromptFlags, SamplingFlags, ComputeFlags)


def by_typer(words: list[str], spelled: dict[str, str], terminal: Terminal) -> list[Any]:
    took: list[Any] = []

    def command(prompt: PromptFlags, sampling: SamplingFlags, compute: ComputeFlags) -> None:
        took.extend((prompt, sampling, compute))

    app = typer.Typer(pretty_exceptions_enable=False)
    command.__annotations__ = {"prompt": PromptFlags, "sampling": SamplingFlags}
    command.__annotations__["compute"] = ComputeFlags
    app.command(cls=FlagCommand)(flagged(command))
    app(words, standalone_mode=False, obj=Invocation(terminal, spelled))
    return took


@pytest.mark.parametrize(
    "argv",
    [
        "",
        "-p hi -n 8 --temp 0",
        "-n 8 --predict 9 --no-warmup --warmup",
        "-r END -r STOP -l 5+1 -l 6-2",
        "--no-warmup -t 3 -cnv",
        "-no-cnv --samplers top_k;temp --seed 7",
    ],
)
@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"LLAMA_ARG_THREADS": "5", "LLAMA_ARG_N_PREDICT": "3", "LLAMA_ARG_DEVICE": ""},
        {"LLAMA_ARG_TOP_K": "4", "LLAMA_ARG_SEED": "9"},
    ],
)
def test_filled_is_what_typer_gives(
    argv: str, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    scanned = scan(argv.split(), GRAMMARS)
    terminal = Terminal()
    expected = by_typer(scanned.words, scanned.spelled, terminal)
    warned = capsys.readouterr().err
    found = filled(GROUPS, scanned.words, scanned.spelled, terminal)
    assert capsys.readouterr().err == warned
    for group, mine, theirs in zip(GROUPS, found, expected, strict=True):
        assert mine.typed == theirs.typed
        for name in group.__annotations__:
            assert getattr(mine, name) == getattr(theirs, name), name


def test_an_empty_pair_of_the_environment_switches_off(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_ARG_NO_CONTEXT_SHIFT", "")
    monkeypatch.setenv("LLAMA_ARG_CONTEXT_SHIFT", "on")
    assert program("-p", "hi").code == 0
    assert not program.opened[-1].context_shift


def test_the_main_job_needs_no_typer() -> None:
    for argv in (["--help"], ["--help-all"], ["-f", "no such file", "--temp", "0"]):
        assert not {name for name in loaded_after(*argv) if name.partition(".")[0] == "typer"}
