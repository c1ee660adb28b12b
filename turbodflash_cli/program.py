"""The program `turbodflash`: its main job, its commands, and the one door errors leave through.

The main job and its help are read without typer, which takes longer to import than all of that.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from turbodflash_cli.argv import ROOT_ONLY, Scanned, scan
from turbodflash_cli.filling import filled
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
from turbodflash_cli.subcommands import HELP, Grammars
from turbodflash_cli.terminal import ClosedPipe, Terminal, prepare_streams
from turbodflash_engine import TurbodflashError

PROGRAM = "turbodflash"

GROUPS = (
    ModelFlags,
    DraftFlags,
    PromptFlags,
    SamplingFlags,
    ContextFlags,
    LastingFlags,
    ComputeFlags,
    ReasoningFlags,
    OutputFlags,
    NgramFlags,
)
"""The options of the main job, as `run` takes them and the help lists them."""

GRAMMARS = Grammars(GROUPS)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; the result is its exit code."""
    prepare_streams()
    obey_termination()
    terminal = Terminal()
    try:
        words = list(sys.argv[1:] if argv is None else argv)
        if _is_completion():
            return _typers(words, {}, terminal)
        scanned = scan(words, GRAMMARS)
        terminal = _terminal_for(scanned.words)
        for note in scanned.notes:
            terminal.note(note)
        code = _do(scanned, terminal)
        sys.stdout.flush()
        return code
    except (BrokenPipeError, ClosedPipe):
        return _leave_quietly()
    except TurbodflashError as error:
        terminal.fail(error)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        return _confess(terminal, error)


def _do(scanned: Scanned, terminal: Terminal) -> int:
    """The command that was named, what an option shows by itself, or the main job."""
    first = scanned.words[0] if scanned.words else ""
    if first in HELP or first in TYPERS:
        return _typers(scanned.words, scanned.spelled, terminal)
    if first in SHOWN:
        terminal.write(f"{SHOWN[first]()}\n")
        return 0
    return _answer(filled(GROUPS, scanned.words, scanned.spelled, terminal), terminal)


def _answer(groups: Sequence[Any], terminal: Terminal) -> int:
    from turbodflash_cli.run import run

    try:
        return run(terminal, *groups)
    except BrokenPipeError as error:
        raise ClosedPipe("the reader of the output closed it") from error


def _typers(words: Sequence[str], spelled: Mapping[str, str], terminal: Terminal) -> int:
    from turbodflash_cli.parsing import run_command

    return run_command(words, spelled, terminal, GROUPS)


def _help() -> str:
    from turbodflash_cli.help import main_page

    return main_page(GROUPS, HELP, all_of_them=False)


def _help_all() -> str:
    from turbodflash_cli.help import main_page

    return main_page(GROUPS, HELP, all_of_them=True)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        number = version(PROGRAM)
    except PackageNotFoundError:  # run from a checkout
        number = "(not installed)"
    return f"{PROGRAM} {number}"


def _list_devices() -> str:
    from turbodflash_cli.devices import page

    return "\n".join(page())


SHOWN = {
    "--help": _help,
    "--help-all": _help_all,
    "--version": _version,
    "--list-devices": _list_devices,
}
"""Options that answer by themselves."""

TYPERS = set(ROOT_ONLY.values()) - SHOWN.keys()
"""Those that typer answers."""


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
