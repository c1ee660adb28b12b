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
from turbodflash_cli.table import columns
from turbodflash_cli.terminal import Terminal
from turbodflash_engine import DoesNotFit

if TYPE_CHECKING:
    from turbodflash_engine import Planned

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
    from turbodflash_engine import plan_files

    spec = spec_options(draft, ngram)
    file = find_model(terminal, model)
    spec = find_draft(terminal, spec, draft, model)
    found = plan_files(load_options(file, window, compute, spec=spec))
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
