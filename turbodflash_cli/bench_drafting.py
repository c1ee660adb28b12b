"""`turbodflash bench -md`: the prompts, and what drafting brought as a page."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turbodflash_cli.progress import size
from turbodflash_cli.prompts import read_text
from turbodflash_cli.speculation import KINDS, NOT_REAL, otherwise, times
from turbodflash_cli.table import columns
from turbodflash_engine import BadUsage

if TYPE_CHECKING:
    from turbodflash_engine import Prompt

GIVEN = "given"
"""The kind of a prompt of whose kind nothing is said."""

COLUMNS = (
    "kind",
    "off",
    "on",
    "speedup",
    "prompt off",
    "on",
    "tokens/pass",
    "accepted",
    "identical",
)
Figures = Mapping[str, Any]


def bench_prompts(file: Path | None) -> list[Prompt]:
    """The prompts in a file, a line each or in JSON; without one, those that are shipped."""
    shipped = Path(__file__).with_name("bench_prompts.json")
    text = shipped.read_text("utf-8") if file is None else read_text(file, "prompts file")
    prompts = _parsed(text)
    if not prompts:
        raise BadUsage(f"there is no prompt in {str(file)!r}.")
    return prompts


def as_table(figures: Figures) -> str:
    """For people."""
    lines = columns([list(COLUMNS), *_rows(figures)], indent="")
    return "\n".join([*_head(figures), "", *lines, "", *_foot(figures)]) + "\n"


def as_markdown(figures: Figures) -> str:
    """The same as a table of Markdown."""
    rows = [COLUMNS, (":---", *["---:"] * (len(COLUMNS) - 1)), *_rows(figures)]
    table = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([*table, "", *(f"- {line}" for line in _foot(figures))]) + "\n"


PAINTERS_OF_DRAFTING: dict[str, Callable[[Figures], str]] = {"table": as_table, "md": as_markdown}


def _parsed(text: str) -> list[Prompt]:
    from turbodflash_engine import Prompt

    if not text.lstrip().startswith("["):
        return [Prompt(GIVEN, line) for line in text.splitlines() if line.strip()]
    try:
        return [
            Prompt(str(each.get("kind", GIVEN)), str(each["text"])) for each in json.loads(text)
        ]
    except (json.JSONDecodeError, RecursionError, AttributeError, KeyError, TypeError) as error:
        raise BadUsage(
            "--prompts is not a list of prompts.",
            hint='write a prompt a line, or [{"kind": "code", "text": "..."}, ...]',
        ) from error


def _head(figures: Figures) -> Iterator[str]:
    yield f"model  {figures['model']} on {figures['device']}"
    words = KINDS.get(figures["draft_kind"], figures["draft_kind"])
    file = f" from '{Path(figures['draft']).name}'" if figures["draft"] else ""
    yield (
        f"draft  {words}{file}, up to {figures['n_max']} tokens a step,"
        f" {size(figures['draft_bytes'])}{otherwise(figures['fallback'])}"
    )


def _rows(figures: Figures) -> Iterator[list[str]]:
    kinds: Mapping[str, Figures] = figures["kinds"]
    for kind, found in (*kinds.items(), ("all", figures)):
        yield [
            kind,
            *(f"{found[name]:.1f}" for name in ("off_tps", "on_tps")),
            f"{found['speedup']:.2f}",
            *(f"{found[name]:.0f}" for name in ("prompt_off_tps", "prompt_on_tps")),
            f"{found['mean_accepted']:.2f}",
            f"{100 * found['acceptance']:.0f}%",
            {True: "yes", False: "no", None: "-"}[found["identical"]],
        ]


def _foot(figures: Figures) -> Iterator[str]:
    seconds = ", ".join(f"{name} {value:.2f}" for name, value in figures["seconds"].items())
    yield (
        f"prompt of {figures['prompt_tokens']} tokens: with the drafter"
        f" {figures['prompt_ratio']:.2f} of the speed without"
    )
    yield f"accepted of a draft: {times(figures['histogram'])}"
    yield f"by position: {' '.join(f'{share:.2f}' for share in figures['per_position']) or 'none'}"
    yield f"verified in a pass: {times(figures['widths'])}"
    yield f"seconds: {seconds}"
    yield f"beside verifying, a pass takes {figures['drafting_over_step']:.2f} of a plain step"
    yield _verdict(figures)


def _verdict(figures: Figures) -> str:
    if figures["synthetic"]:
        return f"identical: not compared, {NOT_REAL}"
    found = figures["first_difference"]
    if found is None:
        return "identical: yes"
    return (
        f"identical: no, token {found['position']} is {found['on']} and not {found['off']}"
        f" after {found['prompt']!r}"
    )
