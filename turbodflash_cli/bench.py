"""`turbodflash bench`: what the machine can do, and how much of it the model gets."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from turbodflash_cli.bench_drafting import PAINTERS_OF_DRAFTING, bench_prompts
from turbodflash_cli.drafting import find_draft, spec_options
from turbodflash_cli.flags import ComputeFlags, ContextFlags, DraftFlags, ModelFlags, NgramFlags
from turbodflash_cli.flags.report import BenchFlags
from turbodflash_cli.interrupt import leaving_at_once
from turbodflash_cli.opening import find_model
from turbodflash_cli.options import forbids_thinking, load_options
from turbodflash_cli.progress import Bar
from turbodflash_cli.table import columns
from turbodflash_cli.terminal import Terminal
from turbodflash_engine import BadUsage, LoadOptions

if TYPE_CHECKING:
    from turbodflash_engine import Prompt

DRAFTING = ("tokens", "repeats", "prompts")
"""Options that only mean something with a drafter."""

UNITS = (
    # ending of a key: what stands after its figure
    ("_percent_of_read", "% of the read bandwidth"),
    ("_percent_of_peak", "% of the peak"),
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

    spec = spec_options(draft, ngram)
    if spec is None and (unused := [flags.typed[name] for name in DRAFTING if name in flags.typed]):
        raise BadUsage(f"{unused[0]} needs a drafter.", hint="-md draft.gguf")
    prompts = bench_prompts(flags.prompts)
    file = find_model(terminal, model)
    spec = find_draft(terminal, spec, draft, model)
    options = load_options(file, window, compute, spec=spec)
    bar = Bar(terminal)
    try:
        with leaving_at_once(bar.clear):
            figures: Figures
            if spec is None:
                figures = measure(options, bar)
            else:
                figures = _with_drafter(options, prompts, flags, bar)
    finally:
        bar.clear()
    painters = PAINTERS if spec is None else PAINTERS | PAINTERS_OF_DRAFTING
    terminal.write(painters[flags.format or "table"](figures))
    return 0


def _with_drafter(
    options: LoadOptions, prompts: Sequence[Prompt], flags: BenchFlags, bar: Bar
) -> Figures:
    from turbodflash_engine import measure_speculation

    given = {"tokens": flags.tokens, "repeats": flags.repeats}
    return measure_speculation(
        options,
        prompts,
        bar,
        thinking=False if forbids_thinking() else None,
        **{name: value for name, value in given.items() if value is not None},
    )


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
