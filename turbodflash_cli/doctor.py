"""`--spec-doctor`: why drafts are rarely right, as a page on stdout."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from turbodflash_cli.bench_drafting import bench_prompts
from turbodflash_cli.interrupt import leaving_at_once
from turbodflash_cli.progress import Bar
from turbodflash_cli.speculation import KINDS
from turbodflash_cli.table import columns
from turbodflash_cli.terminal import Terminal
from turbodflash_engine import BadUsage, LoadOptions

if TYPE_CHECKING:
    from turbodflash_engine import Diagnosis


def doctor(terminal: Terminal, options: LoadOptions, thinking: bool | None) -> int:
    """Examine the pair, and print what was checked and what is suspected."""
    if options.spec is None or options.spec.model is None:
        raise BadUsage("--spec-doctor needs a draft model.", hint="-md draft.gguf")
    from turbodflash_engine import diagnose

    bar = Bar(terminal)
    try:
        with leaving_at_once(bar.clear):
            found = diagnose(options, bench_prompts(None), bar, thinking=thinking)
    finally:
        bar.clear()
    terminal.write("\n".join(page(found)) + "\n")
    return 0


def page(found: Diagnosis) -> Iterator[str]:
    """The lines that are printed."""
    did = found.speculation
    yield f"draft: {KINDS.get(found.draft_kind, found.draft_kind)}"
    yield f"template: {found.template}"
    yield from (f"  | {line}" for line in found.example.rstrip("\n").split("\n"))
    yield ""
    yield "checked:"
    yield from columns(
        [["SUSPECT" if each.suspect else "ok", each.name, each.words] for each in found.checks]
    )
    yield ""
    yield f"acceptance on the shipped prompts: {did.mean_accepted:.2f} tokens a pass"
    if did.per_position:
        yield "by position:"
        yield from columns(
            [[str(at), f"{share:.3f}"] for at, share in enumerate(did.per_position, start=1)]
        )
    yield ""
    suspects = ", ".join(each.name for each in found.suspects)
    yield f"suspected: {suspects or 'nothing'}"
