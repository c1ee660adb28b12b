"""`turbodflash plan --roofline`: predicted speeds, and beside them what was published."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from turbodflash_cli.table import columns
from turbodflash_engine import LoadOptions

if TYPE_CHECKING:
    from turbodflash_engine import Predicted, PredictedFile

PREDICTION = "Predictions for {gpu}, from bytes, operations and launches; nothing was measured."
PUBLISHED = (
    "In brackets: published for another program on an RTX 5090. How many tokens a step brings there"
    " is an assumption."
)


def reference_runs(gpu: str, as_json: bool) -> str:
    """The published runs on a card."""
    from turbodflash_engine import predict_reference_runs

    found = predict_reference_runs(gpu)
    if as_json:
        return json.dumps([asdict(each) for each in found]) + "\n"
    return "\n".join(_page_of_runs(found)) + "\n"


def of_file(options: LoadOptions, gpu: str, tokens_per_step: float, as_json: bool) -> str:
    """A model file on a card."""
    from turbodflash_engine import predict_file

    found = predict_file(options, gpu, tokens_per_step)
    if as_json:
        return json.dumps(asdict(found)) + "\n"
    return "\n".join(_page_of_file(found)) + "\n"


def _page_of_runs(found: Sequence[Predicted]) -> Iterator[str]:
    yield PREDICTION.format(gpu=found[0].gpu)
    yield PUBLISHED
    yield ""
    yield "decode, t/s:"
    heading = ["run", "GiB", "GB/step", "ms/step", "launches", "tokens/step"]
    heading += ["off", "", "on", "", "full, off", "full, on"]
    yield from columns([heading, *map(_decode, found)])
    yield ""
    yield "prompt, t/s, of 24 tokens and of 512:"
    heading = ["run", "off", "", "on", "", "512, off", "512, on"]
    yield from columns([heading, *map(_prompt, found)])


def _decode(each: Predicted) -> list[str]:
    step = each.here.step
    return [
        _name(each),
        f"{each.memory / 2**30:.1f}",
        f"{step.nbytes / 1e9:.2f}",
        f"{1e3 * step.seconds:.2f}",
        f"{step.launches}",
        f"{each.tokens_per_step:g}",
        *_beside(each.here.decode_off, each.run.decode_off),
        *_beside(each.here.decode_on, each.run.decode_on),
        f"{each.full.decode_off:.0f}",
        _figure(each.full.decode_on),
    ]


def _prompt(each: Predicted) -> list[str]:
    return [
        _name(each),
        *_beside(each.here.prompt_off, each.run.prompt_off),
        *_beside(each.here.prompt_on, each.run.prompt_on),
        f"{each.full.prompt_off:.0f}",
        _figure(each.full.prompt_on),
    ]


def _name(each: Predicted) -> str:
    run = each.run
    note = f", {run.note}" if run.note else ""
    cache = f"{run.cache_k}/{run.cache_v}"
    return f"{each.name} {run.weights} {run.context} {cache} (v{run.version}{note})"


def _beside(predicted: float | None, published: float | None) -> list[str]:
    return [_figure(predicted), "" if published is None else f"({published:g})"]


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def _page_of_file(found: PredictedFile) -> Iterator[str]:
    yield PREDICTION.format(gpu=found.gpu)
    yield f"{found.name}, {found.parameters / 1e9:.2f} B parameters"
    yield ""
    first = next(iter(found.depths.values()))
    drafts = first.decode_on is not None
    heading = ["depth", "GB/step", "ms/step", "launches", "decode, t/s"]
    heading += ["with the draft", "pays from, tokens/step"] if drafts else []
    rows = [heading]
    for depth, speeds in found.depths.items():
        row = [f"{depth}", f"{speeds.step.nbytes / 1e9:.3f}", f"{1e3 * speeds.step.seconds:.2f}"]
        row += [f"{speeds.step.launches}", f"{speeds.decode_off:.0f}"]
        row += [_figure(speeds.decode_on), f"{speeds.pays_from:.2f}"] if drafts else []
        rows.append(row)
    yield from columns(rows)
    yield ""
    on = f", {first.prompt_on:.0f} with the draft" if first.prompt_on is not None else ""
    yield f"prompt of {found.prompt} tokens: {first.prompt_off:.0f} t/s{on}"
    if drafts:
        yield f"The draft is taken to bring {found.tokens_per_step:g} tokens a step."
