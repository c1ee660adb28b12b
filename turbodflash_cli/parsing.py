"""What typer does: the commands beside the main job, and completing words in shells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import typer

from turbodflash_cli.commands import FlagCommand, FlagGroup, Invocation, completed
from turbodflash_cli.flags import Group
from turbodflash_cli.help import ABOUT
from turbodflash_cli.subcommands import HELP, MODELS, MODELS_HELP, SUBCOMMANDS, subcommand
from turbodflash_cli.terminal import Terminal
from turbodflash_engine import BadUsage

PROGRAM = "turbodflash"
SWITCHES = ("--version", "--list-devices", "--help-all")


def run_command(
    words: Sequence[str],
    spelled: Mapping[str, str],
    terminal: Terminal,
    groups: Sequence[type[Group]],
) -> int:
    """Do what regular words ask of a command, or a shell asks; the result is the exit code.

    groups: the options of the main job.
    """
    named = words[0] if words and words[0] in HELP else ""
    app = _app([named] if named else list(HELP), () if named else groups)
    invocation = Invocation(terminal, spelled)
    try:
        code: Any = app(list(words), prog_name=PROGRAM, standalone_mode=False, obj=invocation)
    except typer.TyperException as error:  # a slip that the scan let through
        sentence = error.format_message()
        words_of_it = f"{sentence[:1].lower()}{sentence[1:]}"
        raise BadUsage(words_of_it, hint=f"{PROGRAM} -h") from error
    except typer.Abort:
        raise KeyboardInterrupt from None
    return code if isinstance(code, int) else 0


def _app(commands: Sequence[str], groups: Sequence[type[Group]]) -> typer.Typer:
    """What typer shall know of the program: these commands, and these options of the main job."""
    app = typer.Typer(
        help=ABOUT,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(cls=FlagGroup)(completed(groups, SWITCHES))
    for name in commands:
        if name == MODELS:
            from turbodflash_cli.models import app as models

            app.add_typer(models, name=MODELS, help=MODELS_HELP)
        else:
            app.command(name, cls=FlagCommand, help=SUBCOMMANDS[name].page)(subcommand(name))
    return app
