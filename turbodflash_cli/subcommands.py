"""The commands beside the main job. What one takes and does is imported when it is asked for:
to describe all of them to the parser would take longer than all else that a start does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from turbodflash_cli.argv import ROOT, Grammar
from turbodflash_cli.flags import Group

if TYPE_CHECKING:
    from turbodflash_cli.commands import Command


class About(NamedTuple):
    """help: a line. more: what its own page says after that. words: how many it takes."""

    help: str
    more: str = ""
    words: int = 0

    @property
    def page(self) -> str:
        """What stands at the head of its own page."""
        return f"{self.help}\n\n{self.more}" if self.more else self.help


SUBCOMMANDS = {
    # the name is that of a module here, and of its function
    "bench": About("Measure the machine and the model; with -md, the drafting."),
    "plan": About("Say what a model would take, and whether it fits."),
    "inspect": About("Show what is in a GGUF file.", words=1),
    "perplexity": About(
        "Measure how well the model predicts a text.",
        more="-c is 512 unless given. The estimate goes to stdout, everything else to stderr.",
    ),
}
MODELS = "models"
MODELS_HELP = "List, fetch and remove models."
"""The one that has commands of its own, and reads its own words."""

HELP = {name: about.help for name, about in SUBCOMMANDS.items()} | {MODELS: MODELS_HELP}


@cache
def subcommand(name: str) -> Command:
    """The function behind a command, in the form that typer reads."""
    from turbodflash_cli.commands import flagged

    return flagged(getattr(import_module(f"turbodflash_cli.{name}"), name))


class Grammars(Mapping[str, Grammar | None]):
    """What each command understands; read from it when it is asked for.

    groups: the options of the main job.
    """

    def __init__(self, groups: Sequence[type[Group]]) -> None:
        self._groups = groups

    def __getitem__(self, name: str) -> Grammar | None:
        if name == ROOT:
            return Grammar.of(*self._groups)
        if name == MODELS:
            return None
        from turbodflash_cli.commands import groups_of

        return Grammar.of(*groups_of(subcommand(name)), words=SUBCOMMANDS[name].words)

    def __contains__(self, name: object) -> bool:
        return name in (ROOT, *HELP)

    def __iter__(self) -> Iterator[str]:
        return iter((ROOT, *HELP))

    def __len__(self) -> int:
        return 1 + len(HELP)
