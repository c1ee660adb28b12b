"""`turbodflash plan`: what a model would take of memory, before anything is loaded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from turbodflash_cli.drafting import find_draft, spec_options
from turbodflash_cli.flags import ComputeFlags, ContextFlags, DraftFlags, ModelFlags, NgramFlags
from turbodflash_cli.flags.plan import PlanFlags
from turbodflash_cli.opening import find_model
from turbodflash_cli.options import load_options
from turbodflash_cli.progress import size
from turbodflash_cli.roofline import of_file, reference_runs
from turbodflash_cli.table import columns
from turbodflash_cli.terminal import Terminal
from turbodflash_engine import BadUsage, DoesNotFit, LoadOptions

if TYPE_CHECKING:
    from turbodflash_engine import Planned

TOKENS_PER_STEP = 4.0
"""What a draft is taken to bring in a step when `--spec-synth-len` does not say."""

RESERVED = 1 << 30
"""Bytes of a card that its driver, a display and torch keep for themselves."""

PLACES = {"host": "memory", "card": "GPU memory"}


def plan(
    terminal: Terminal,
    model: ModelFlags,
    draft: DraftFlags,
    flags: PlanFlags,
    window: ContextFlags,
    compute: ComputeFlags,
    ngram: NgramFlags,
) -> int:
    """Print it as text or as JSON; what does not fit exits with 1."""
    if flags.roofline and flags.gpu is None:
        raise BadUsage("--roofline predicts for a card.", hint="name it, such as --gpu rtx5090")
    if flags.roofline and not _names_a_model(model):
        terminal.write(reference_runs(flags.gpu or "", flags.json))
        return 0
    spec = spec_options(draft, ngram)
    file = find_model(terminal, model)
    spec = find_draft(terminal, spec, draft, model)
    options = load_options(file, window, compute, spec=spec)
    if flags.roofline:
        bringing = draft.synth_len or TOKENS_PER_STEP
        terminal.write(of_file(options, flags.gpu or "", bringing, flags.json))
        return 0
    return _say(terminal, options, flags)


def _names_a_model(model: ModelFlags) -> bool:
    return any((model.model, model.hf_repo, model.hf_file))


def _say(terminal: Terminal, options: LoadOptions, flags: PlanFlags) -> int:
    from turbodflash_engine import Card, gpu, plan_files

    if flags.gpu is None:
        found = plan_files(options)
    else:
        card = gpu(flags.gpu)
        free = int(card.memory_gib * 2**30) - RESERVED
        found = plan_files(options, Card(card.name, free))
    if flags.json:
        terminal.write(json.dumps(record(found), ensure_ascii=False) + "\n")
    else:
        terminal.write("\n".join(page(found)) + "\n")
    for note in found.notes:
        terminal.warn(note)
    return 0 if found.fits else DoesNotFit.exit_code


def record(found: Planned) -> dict[str, object]:
    """Everything under its own names, and whether it fits."""
    return {**asdict(found), "shares": [s._asdict() for s in found.shares], "fits": found.fits}


def page(found: Planned) -> Iterator[str]:
    """The lines that are printed."""
    yield from columns(_head(found), indent="")
    for place, called in PLACES.items():
        if any(share.place == place for share in found.shares):
            yield ""
            yield f"{called}:"
            yield from _place(found, place)
    yield ""
    yield from _verdict(found)


def _head(found: Planned) -> list[list[str]]:
    rows = [["model", found.model]]
    rows += [["draft", found.draft]] if found.draft else []
    rows += [
        ["context", f"{found.context:,} tokens (trained: {found.trained_context:,})"],
        ["keys, values", f"{found.cache_type_k}, {found.cache_type_v}"],
        ["device", found.device],
    ]
    if found.card:
        on_card = f"{found.gpu_layers} of {found.layers + 1} layers"
        rows.append(["GPU", f"{found.card}, {on_card}"])
    return rows


def _place(found: Planned, place: str) -> list[str]:
    here = [share for share in found.shares if share.place == place]
    owners = {"model": "", "draft": "draft: "}
    rows = [[f"{owners[share.owner]}{share.kind}", size(share.nbytes)] for share in here]
    rows.append(["together", size(sum(share.nbytes for share in here))])
    free = found.free[place]
    rows.append(["free", "unknown" if free is None else size(free)])
    return columns(rows)


def _verdict(found: Planned) -> Iterator[str]:
    if found.fits:
        yield f"It fits; so does a context of up to {found.largest_context:,} tokens."
        return
    lacking = (
        f"{size(nbytes)} of {PLACES[place]}" for place, nbytes in found.missing.items() if nbytes
    )
    yield f"It does not fit: {' and '.join(lacking)} too few."
    if found.changes:
        yield "What would fit:"
        yield from (f"  {change}" for change in found.changes)
    else:
        yield "Nothing but a smaller file of this model would fit."
