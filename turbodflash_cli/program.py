"""The program `turbodflash`: its commands, and the one door through which errors leave."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated

import typer

from turbodflash_cli.argv import Scanned, scan
from turbodflash_cli.commands import ClosedPipe, FlagCommand, FlagGroup, Invocation, flagged
from turbodflash_cli.flags import (
    ComputeFlags,
    ContextFlags,
    DraftFlags,
    LastingFlags,
    ModelFlags,
    NgramFlags,
    OutputFlags,
    PromptFlags,
    ReasoningFlags,
    SamplingFlags,
)
from turbodflash_cli.interrupt import CODE as INTERRUPTED
from turbodflash_cli.interrupt import obey_termination
from turbodflash_cli.subcommands import (
    HELP,
    MODELS,
    MODELS_HELP,
    SUBCOMMANDS,
    Grammars,
    subcommand,
)
from turbodflash_cli.terminal import Terminal, prepare_streams
from turbodflash_engine import BadUsage, TurbodflashError

PROGRAM = "turbodflash"


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import PackageNotFoundError, version

        try:
            number = version(PROGRAM)
        except PackageNotFoundError:  # run from a checkout
            number = "(not installed)"
        typer.echo(f"{PROGRAM} {number}")
        raise typer.Exit


def _help_all(context: typer.Context, asked: bool) -> None:
    if asked:
        context.meta["help_all"] = True
        typer.echo(context.get_help())
        raise typer.Exit


def _list_devices(context: typer.Context, asked: bool) -> None:
    if asked:
        from turbodflash_cli.devices import page

        context.obj.terminal.write("\n".join(page()) + "\n")
        raise typer.Exit


@flagged
def answer(
    context: typer.Context,
    terminal: Terminal,
    model: ModelFlags,
    draft: DraftFlags,
    prompt: PromptFlags,
    sampling: SamplingFlags,
    window: ContextFlags,
    lasting: LastingFlags,
    compute: ComputeFlags,
    reasoning: ReasoningFlags,
    output: OutputFlags,
    ngram: NgramFlags,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True)] = False,
    list_devices: Annotated[
        bool, typer.Option("--list-devices", callback=_list_devices, is_eager=True)
    ] = False,
    help_all: Annotated[
        bool, typer.Option("--help-all", callback=_help_all, is_eager=True)
    ] = False,
) -> int:
    """Answer a prompt, or chat, with a model from a GGUF file.

    Generated text goes to stdout, everything else to stderr.
    """
    if context.invoked_subcommand is not None:
        return 0
    from turbodflash_cli.run import run

    return run(
        *(terminal, model, draft, prompt, sampling, window, lasting),
        *(compute, reasoning, output, ngram),
    )


GRAMMARS = Grammars(answer)


def parser_of(*commands: str) -> typer.Typer:
    """What typer shall know of the program: the main job, and these of its commands."""
    app = typer.Typer(
        help="Run open language models from GGUF files.",
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(cls=FlagGroup, invoke_without_command=True)(answer)
    for name in commands:
        if name in SUBCOMMANDS:
            app.command(name, cls=FlagCommand, help=SUBCOMMANDS[name].page)(subcommand(name))
        elif name == MODELS:
            from turbodflash_cli.models import app as models

            app.add_typer(models, name=MODELS, help=MODELS_HELP)
    return app


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; the result is its exit code."""
    prepare_streams()
    obey_termination()
    terminal = Terminal()
    try:
        words = list(sys.argv[1:] if argv is None else argv)
        completes = _is_completion()
        scanned = Scanned(words) if completes else scan(words, GRAMMARS)
        terminal = _terminal_for(scanned.words)
        for note in scanned.notes:
            terminal.note(note)
        invocation = Invocation(terminal, scanned.spelled, HELP)
        app = parser_of(*(HELP if completes else scanned.words[:1]))
        code = app(scanned.words, prog_name=PROGRAM, standalone_mode=False, obj=invocation)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except (BrokenPipeError, ClosedPipe):
        return _leave_quietly()
    except TurbodflashError as error:
        terminal.fail(error)
        return error.exit_code
    except typer.TyperException as error:  # a slip that the scan let through
        sentence = error.format_message()
        terminal.fail(BadUsage(f"{sentence[:1].lower()}{sentence[1:]}", hint=f"{PROGRAM} -h"))
        return BadUsage.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except Exception as error:
        return _confess(terminal, error)


def _terminal_for(words: Sequence[str]) -> Terminal:
    """The terminal as its options want it, known before they are parsed: errors need it too."""
    colors = [word.partition("=")[2].lower() for word in words if word.startswith("--color=")]
    color = colors[-1] if colors and colors[-1] in ("on", "off") else "auto"
    return Terminal(color, simple="--simple-io" in words, verbose="--verbose" in words)


def _leave_quietly() -> int:
    """The reader is gone: nothing more is written, not even at the end of the process."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return ClosedPipe.exit_code


def _confess(terminal: Terminal, error: Exception) -> int:
    """A bug of ours. The trace is shown on request only: it may hold a person's prompt."""
    if terminal.verbose:
        import traceback

        traceback.print_exception(error)
    name = type(error).__name__
    terminal.fail(
        TurbodflashError(f"internal error: {name}: {error}", "run again with -v and report it")
    )
    return 1


def _is_completion() -> bool:
    """Whether a shell asks for completions through typer."""
    return f"_{PROGRAM.upper()}_COMPLETE" in os.environ
