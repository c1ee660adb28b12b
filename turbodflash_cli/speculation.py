"""What is told about drafting: when it is loaded, after an answer, and in JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from turbodflash_cli.progress import size
from turbodflash_cli.table import columns
from turbodflash_engine import Finished, Speculation

if TYPE_CHECKING:
    from turbodflash_engine import DraftInfo

KINDS = {
    "draft-dflash": "a DFlash draft",
    "draft-dspark": "a DSpark draft",
    "draft-eagle3": "an EAGLE-3 draft",
    "draft-mtp": "a block of the model's own",
    "draft-simple": "a plain model",
}
NOT_REAL = "acceptance is synthetic; the text is not real"


def opening(draft: DraftInfo) -> str:
    """One line that says who drafts."""
    words = (KINDS.get(kind.strip(), kind.strip()) for kind in draft.kind.split(","))
    file = f" from '{draft.path.name}'" if draft.path else ""
    last = otherwise(draft.fallback)
    return f"draft: {' and '.join(words)}{file}, up to {draft.longest} tokens a step{last}"


def otherwise(fallback: str | None) -> str:
    """Who guesses where the draft does not pay."""
    return f"; where it does not pay, {fallback}" if fallback else ""


def details(draft: DraftInfo) -> Iterator[str]:
    """What `-v` adds."""
    if draft.taps:
        layers = ", ".join(map(str, draft.taps))
        rows = f"enters layers {layers}" if draft.kind != "draft-mtp" else "leaves the last layer"
        yield f"draft: reads what {rows} of the model"
    if draft.path:
        yield (
            f"draft: {size(draft.file_bytes)}, {draft.parameters / 1e6:.1f} M parameters,"
            f" context {draft.context} tokens"
        )
    yield f"draft: memory {memory(draft)}"


def memory(draft: DraftInfo) -> str:
    """What the drafter takes beside the model."""
    parts = draft.memory
    return (
        f"weights {size(parts.weights)}, cache {size(parts.cache)}, scratch {size(parts.scratch)}"
    )


def summary_line(finished: Finished, draft: DraftInfo | None) -> str | None:
    """`[ Draft: 40.0% accepted (246/615) | 7.00 tokens/step | n-max 15 ]`; None without one."""
    did = finished.speculation
    if did is None:
        return None
    share = (
        f"{100 * did.acceptance:.1f}% accepted ({did.accepted}/{did.drafted})"
        if did.drafted
        else "nothing drafted"
    )
    parts = [f"Draft: {share}", f"{did.mean_accepted:.2f} tokens/step"]
    parts += [f"n-max {draft.longest}"] if draft else []
    parts += ["not real"] if did.synthetic else []
    return f"[ {' | '.join(parts)} ]"


def table(did: Speculation, draft: DraftInfo | None) -> list[str]:
    """The whole account, a line for each thing."""
    rows = [
        ["drafter", did.drafter],
        ["passes", f"{did.steps} for {did.emitted} tokens: {did.mean_accepted:.2f} a pass"],
        ["drafts", f"{did.drafts} verified, {did.probes} made to see if it pays"],
        ["tokens", f"{did.drafted} drafted, {did.tested} tested, {did.accepted} accepted"],
        ["acceptance", f"{100 * did.acceptance:.1f} % of the drafted tokens"],
        ["by position", " ".join(f"{share:.2f}" for share in did.per_position) or "none"],
        ["accepted", times(did.histogram)],
        ["verified", times(did.widths)],
        ["seconds", _seconds(did)],
        ["memory", memory(draft) if draft else size(did.nbytes)],
    ]
    return columns([*rows, *([["note", NOT_REAL]] if did.synthetic else [])])


def record(finished: Finished, draft: DraftInfo | None) -> dict[str, Any] | None:
    """The same for programs, under fixed names; None without a drafter."""
    did = finished.speculation
    if did is None or draft is None:
        return None
    return {
        "model": str(draft.path) if draft.path else None,
        "kind": draft.kind,
        "n_max": draft.longest,
        "fallback": draft.fallback,
        "taps": list(draft.taps),
        "bytes": sum(draft.memory),
        **counts(did),
    }


def counts(did: Speculation) -> dict[str, Any]:
    """Every figure of an account."""
    figures = {name: value for name, value in did._asdict().items() if name != "nbytes"}
    figures |= {
        "mean_accepted": did.mean_accepted,
        "acceptance": did.acceptance,
        "per_position": did.per_position,
    }
    return {name: list(v) if isinstance(v, tuple) else v for name, v in figures.items()}


def times(counted: Sequence[int]) -> str:
    """How often 0, 1, 2, ...; what never was is left out."""
    shown = [f"{number} tokens {times}x" for number, times in enumerate(counted) if times]
    return ", ".join(shown) or "none"


def _seconds(did: Speculation) -> str:
    return (
        f"draft {did.seconds_draft:.3f}, verify {did.seconds_verify:.3f},"
        f" observe {did.seconds_observe:.3f}, rest {did.seconds_rest:.3f}"
    )
