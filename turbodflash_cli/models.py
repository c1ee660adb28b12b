"""`turbodflash models`: the catalogue, and what of it is on this machine.

Each command imports what it needs: the parser imports this file whichever of them is asked for.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

app = typer.Typer(
    help="List, fetch and remove the models that have a name.",
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Argument(help="A name that `turbodflash models list` shows.")]


@app.callback(invoke_without_command=True)
def models(context: typer.Context) -> None:
    """List, fetch and remove the models that have a name."""
    if context.invoked_subcommand is None:
        list_models()


@app.command("list")
def list_models() -> None:
    """Show every model, and whether it is on this machine."""
    from turbodflash_cli.catalogue import Catalogue
    from turbodflash_cli.store import Store

    catalogue, store = Catalogue.shipped(), Store()
    width = max(map(len, catalogue.names()))
    for entry in catalogue.entries:
        where = "on this machine" if store.has(entry) else "not fetched"
        default = "; the default" if entry is catalogue.default else ""
        print(
            f"{entry.name:{width}}  {entry.bytes / 1e6:6,.0f} MB  {entry.licence:10}  {where}"
            f"  ({entry.about}{default}{entry.terms and f'; {entry.terms}'})"
        )


@app.command()
def pull(name: Name) -> None:
    """Fetch a model, or check the file that is here against its sha256."""
    from turbodflash_cli.catalogue import Catalogue
    from turbodflash_cli.fetch import fetch
    from turbodflash_cli.progress import Bar
    from turbodflash_cli.store import Store
    from turbodflash_cli.terminal import Terminal

    entry, terminal = Catalogue.shipped().find(name), Terminal()
    if entry.notice:
        terminal.note(entry.notice)
    bar = Bar(terminal)
    try:
        path = fetch(entry, Store(), report=bar.report, verify=True)
    finally:
        bar.clear()
    print(path)


@app.command()
def rm(name: Name) -> None:
    """Remove a model's file from this machine."""
    from turbodflash_cli.catalogue import Catalogue
    from turbodflash_cli.store import Store

    freed = Store().remove(Catalogue.shipped().find(name))
    print(f"freed {freed / 1e6:,.0f} MB" if freed else f"{name} was not on this machine")


@app.command()
def path(name: Name) -> None:
    """Print where a model's file is, for use in other commands."""
    from turbodflash_cli.catalogue import Catalogue
    from turbodflash_cli.store import Store

    entry, store = Catalogue.shipped().find(name), Store()
    print(store.path(entry))
    if not store.has(entry):
        print(f"note: not fetched yet; `turbodflash models pull {name}` does.", file=sys.stderr)
