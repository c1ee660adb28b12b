"""`turbodflash inspect FILE`: what is in a model file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turbodflash_cli.flags.report import InspectFlags
from turbodflash_cli.progress import size
from turbodflash_cli.table import columns
from turbodflash_cli.terminal import Terminal
from turbodflash_engine import BadModel

if TYPE_CHECKING:
    from turbodflash_engine import Inspection, LayerSummary

TEMPLATE_LINES = 6
MOST_RANGES = 5


def inspect(
    terminal: Terminal,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A GGUF file.")],
    flags: InspectFlags,
) -> int:
    """Print it as text or as JSON; a file that would not load is shown, and exits with 3."""
    from turbodflash_engine import inspect_file

    found = inspect_file(file.expanduser())
    if flags.json:
        terminal.write(json.dumps(asdict(found), ensure_ascii=False, default=str) + "\n")
    else:
        terminal.write("\n".join(page(found, flags)) + "\n")
    for problem in found.problems:
        terminal.warn(f"this file would not load: {problem}")
    return BadModel.exit_code if found.problems else 0


def page(found: Inspection, flags: InspectFlags) -> Iterator[str]:
    """The lines that are printed."""
    yield from columns(_head(found), indent="")
    yield from _section("layers", columns(_layers(found)))
    yield from _section("types", _types(found))
    yield from _section("tokenizer", columns(_tokenizer(found)))
    yield from _section("chat template", _template(found))
    if flags.metadata:
        yield from _section("metadata", columns([[k, str(v)] for k, v in found.metadata.items()]))
    if flags.tensors:
        yield from _section("tensors", columns(_tensors(found)))
    yield from _section("keys that nobody reads", [f"  {key}" for key in found.unread])


def _section(title: str, lines: list[str]) -> Iterator[str]:
    if lines:
        yield ""
        yield f"{title}:"
        yield from lines


def _head(found: Inspection) -> list[list[str]]:
    files = f" in {len(found.parts)} files" if len(found.parts) > 1 else ""
    return [
        ["file", found.path],
        ["name", found.name],
        ["architecture", found.architecture],
        *([["drafts as", found.drafts]] if found.drafts else []),
        ["weights", found.file_type],
        ["parameters", f"{found.parameters:,} ({found.active:,} active per token)"],
        ["size", f"{size(found.file_bytes)} ({found.file_bytes:,} bytes){files}"],
        ["GGUF version", f"{found.version}"],
        ["tensors", f"{len(found.tensors)}"],
    ]


def _layers(found: Inspection) -> list[list[str]]:
    return [
        [
            f"{len(each.layers)} layer{'s' * (len(each.layers) > 1)}",
            ", ".join(_parts(each)),
            f"{each.parameters:,} weights",
            size(each.nbytes),
            f"({ranges(each.layers)})",
        ]
        for each in found.layers
    ]


def _parts(layer: LayerSummary) -> Iterator[str]:
    """What a layer is made of."""
    if layer.mtp:
        yield "mtp"
    if layer.window:
        yield f"attention of {layer.window}"
    elif layer.mixer != "none":
        yield layer.mixer
    if layer.dense:
        yield "dense"
    if layer.experts:
        yield f"{layer.used} of {layer.experts} experts" + " and a shared one" * layer.shared


def ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers in few words: "0-2, 4", or with their step: "3, 7 ... 39"."""
    steps = {after - before for before, after in pairwise(numbers)}
    if len(numbers) > 3 and len(steps) == 1 and steps != {1}:
        return f"{numbers[0]}, {numbers[1]} ... {numbers[-1]}"
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    told = [f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs]
    if len(told) > MOST_RANGES:
        told = [*told[: MOST_RANGES - 1], f"... {told[-1]}"]
    return ", ".join(told)


def _types(found: Inspection) -> list[str]:
    rows = [
        [each.type, f"{each.tensors} tensors", f"{each.elements:,} weights", size(each.nbytes)]
        for each in found.types
    ]
    return columns(rows)


def _tokenizer(found: Inspection) -> list[list[str]]:
    tokenizer = found.tokenizer
    if tokenizer is None:
        return []
    rows = [
        ["model", tokenizer.model],
        ["pre", tokenizer.pre],
        ["tokens", f"{tokenizer.tokens:,}"],
        ["merges", f"{tokenizer.merges:,}"],
    ]
    return rows + [[each.role, f"{each.id} {each.text!r}"] for each in tokenizer.special]


def _template(found: Inspection) -> list[str]:
    if found.chat_template is None:
        return ["  none"]
    lines = found.chat_template.splitlines()
    shown = [f"  {line[:96]}" for line in lines[:TEMPLATE_LINES]]
    hidden = len(found.chat_template) - sum(len(line.strip()) for line in shown)
    return (
        [*shown, f"  ... {len(found.chat_template)} characters"] if hidden > len(lines) else shown
    )


def _tensors(found: Inspection) -> list[list[str]]:
    return [
        [each.name, each.type, " x ".join(map(str, each.shape)), size(each.nbytes)]
        for each in found.tensors
    ]
