"""`turbodflash bench`: what the machine can do, and how much of it the model gets."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping
from typing import Any

from turbodflash_cli.flags import ComputeFlags, ContextFlags, DraftFlags, ModelFlags, NgramFlags
from turbodflash_cli.flags.report import BenchFlags
from turbodflash_cli.interrupt import leaving_at_once
from turbodflash_cli.opening import find_model
from turbodflash_cli.options import load_options
from turbodflash_cli.progress import Bar
from turbodflash_cli.table import columns
from turbodflash_cli.terminal import Terminal

UNITS = (
    # ending of a key: what stands after its figure
    ("_percent_of_read", "% of the read bandwidth"),
    ("_percent_of_peak", "% of the int8 peak"),
    ("_gbs", "GB/s"),
    ("_gmacs", "GMAC/s"),
    ("_s", "s"),
)
Figures = Mapping[str, Any]


def bench(
    terminal: Terminal,
    model: ModelFlags,
    draft: DraftFlags,
    flags: BenchFlags,
    window: ContextFlags,
    compute: ComputeFlags,
    ngram: NgramFlags,
) -> int:
    """Measure, and print the figures on stdout."""
    from turbodflash_engine import measure

    options = load_options(find_model(terminal, model), window, compute)
    bar = Bar(terminal)
    try:
        with leaving_at_once(bar.clear):
            figures = measure(options, bar)
    finally:
        bar.clear()
    terminal.write(PAINTERS[flags.format or "table"](figures))
    return 0


def as_table(figures: Figures) -> str:
    """A line for each figure, with its unit."""
    rows = [[name.replace("_", " "), _figure(name, value)] for name, value in _flat(figures)]
    return "\n".join(columns(rows, indent="")) + "\n"


def as_markdown(figures: Figures) -> str:
    """The same as a table of Markdown."""
    lines = ["| what | figure |", "| :--- | ---: |"]
    lines += [f"| {name} | {_figure(name, value)} |" for name, value in _flat(figures)]
    return "\n".join(lines) + "\n"


def as_json(figures: Figures) -> str:
    """Everything, under its own keys."""
    return json.dumps(dict(figures), indent=1, default=str) + "\n"


def as_csv(figures: Figures) -> str:
    """A line of keys, a line of values, every one quoted."""
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    flat = _flat(figures)
    writer.writerow([name for name, _ in flat])
    writer.writerow([value for _, value in flat])
    return text.getvalue()


PAINTERS: dict[str, Callable[[Figures], str]] = {
    "table": as_table,
    "md": as_markdown,
    "json": as_json,
    "csv": as_csv,
}


def _flat(figures: Figures) -> list[tuple[str, Any]]:
    """Keys and values; of a value that is a table itself, its own, with the key before them."""
    flat: list[tuple[str, Any]] = []
    for name, value in figures.items():
        if isinstance(value, Mapping):
            flat += [(f"{name}_{inner}", figure) for inner, figure in _flat(value)]
        else:
            flat.append((name, value))
    return flat


def _figure(name: str, value: Any) -> str:
    shown = f"{value:.4g}" if isinstance(value, float) else str(value)
    if isinstance(value, float) and abs(value) >= 1000:
        shown = f"{value:.0f}"
    return f"{shown} {_unit(name)}".rstrip()


def _unit(name: str) -> str:
    if "_tps" in name:
        return "t/s"
    return next((unit for ending, unit in UNITS if name.endswith(ending)), "")
