"""What `turbodflash perplexity` prints: pages for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from turbodflash_cli.table import columns

if TYPE_CHECKING:
    from turbodflash_engine import Divergence, Estimate, Perplexity, SweepRow

NAMES = {
    1.0: "Maximum",
    0.5: "Median ",
    0.0: "Minimum",
}
KLD_SHARES = (1.0, 0.999, 0.99, 0.95, 0.9, 0.5, 0.1, 0.05, 0.01, 0.001, 0.0)
SWEEP = ("type", "bytes/token", "PPL", "+/-", "ratio to f16", "+/-", "KL to f16", "same top")


def page(found: Perplexity) -> str:
    """The estimate as llama-perplexity prints it; what a comparison found comes before it."""
    lines = list(_divergence(found.divergence)) if found.divergence else []
    lines.append(f"Final estimate: PPL = {found.ppl.value:.4f} +/- {found.ppl.error:.5f}")
    return "\n".join(lines) + "\n"


def speed_line(found: Perplexity) -> str:
    """How much was read, and how fast."""
    size = f"chunks of {found.context}" if found.chunks != 1 else f"chunk of {found.context}"
    return (
        f"[ Perplexity: {found.chunks} {size}, {found.scored:,} tokens scored"
        f" | {found.tokens_per_second:.1f} t/s ]"
    )


def details(found: Perplexity) -> Iterator[str]:
    """What `-v` adds: where it was computed, and the running value after each chunk."""
    yield f"device: {found.device}; KV cache {found.cache_type_k}/{found.cache_type_v}"
    yield ",".join(f"[{at}]{value:.4f}" for at, value in enumerate(found.running, start=1))


def as_json(found: Perplexity) -> str:
    """Everything, as one object."""
    return json.dumps(record(found), ensure_ascii=False) + "\n"


def record(found: Perplexity) -> dict[str, Any]:
    """The fields under their own names; an estimate is a value, and `_error` beside it."""
    fields = _flat(asdict(found))
    divergence = found.divergence
    fields["file"] = str(found.file)
    fields["tokens_per_second"] = found.tokens_per_second
    fields["running"] = list(found.running)
    fields["divergence"] = None if divergence is None else _flat(asdict(divergence))
    return fields


def sweep_table(rows: Sequence[SweepRow]) -> str:
    """A line for each type; one that the model cannot take has the reason for its figures."""
    measured = [row for row in rows if row.found]
    lines = columns([SWEEP, *(_sweep_row(row) for row in measured)], indent="")
    refused = [[row.name, row.refused] for row in rows if not row.found]
    return "\n".join([*lines, *columns(refused, indent="")]) + "\n"


def sweep_json(rows: Sequence[SweepRow]) -> str:
    """A list of objects: a type, and what was found or why it was refused."""
    return (
        json.dumps(
            [
                {"cache_types": row.name, "refused": row.refused or None}
                | (record(row.found) if row.found else {})
                for row in rows
            ],
            ensure_ascii=False,
        )
        + "\n"
    )


def _sweep_row(row: SweepRow) -> list[str]:
    found = row.found
    assert found is not None
    against = found.divergence
    return [
        _types(row, found),
        f"{found.cache_bytes_per_token:,.0f}",
        f"{found.ppl.value:.4f}",
        f"{found.ppl.error:.4f}",
        f"{against.ratio.value:.5f}" if against else "1",
        f"{against.ratio.error:.5f}" if against else "0",
        f"{against.kld.value:.6f}" if against else "0",
        f"{100 * against.same_top.value:.2f}%" if against else "100%",
    ]


def _types(row: SweepRow, found: Perplexity) -> str:
    """What was asked for, and what it became where layers are protected."""
    stored = (found.cache_type_k, found.cache_type_v)
    if stored == (row.type_k, row.type_v):
        return row.name
    return f"{row.name} ({'/'.join(stored)})"


def _divergence(found: Divergence) -> Iterator[str]:
    yield "====== Perplexity statistics ======"
    yield f"Mean PPL(Q)                   : {_pair(found.ppl)}"
    yield f"Mean PPL(base)                : {_pair(found.ppl_base)}"
    yield f"Cor(ln(PPL(Q)), ln(PPL(base))): {100 * found.correlation:6.2f}%"
    yield f"Mean ln(PPL(Q)/PPL(base))     : {_pair(found.log_ratio)}"
    yield f"Mean PPL(Q)/PPL(base)         : {_pair(found.ratio)}"
    yield f"Mean PPL(Q)-PPL(base)         : {_pair(found.difference)}"
    yield ""
    yield "====== KL divergence statistics ======"
    yield f"Mean    KLD: {_pair(found.kld)}"
    for share in KLD_SHARES:
        yield f"{_share(share)} KLD: {found.kld_quantiles[share]:10.6f}"
    yield ""
    yield "====== Token probability statistics ======"
    yield f"Mean    Δp: {_percent(found.delta_p)}"
    for share, value in found.delta_p_quantiles.items():
        yield f"{_share(share)} Δp: {100 * value:6.3f}%"
    yield f"RMS Δp    : {_percent(found.rms_delta_p)}"
    yield f"Same top p: {_percent(found.same_top)}"
    yield ""


def _share(share: float) -> str:
    return NAMES.get(share, f"{100 * share:4.1f}%  ")


def _pair(estimate: Estimate) -> str:
    return f"{estimate.value:10.6f} ± {estimate.error:10.6f}"


def _percent(estimate: Estimate) -> str:
    return f"{100 * estimate.value:6.3f} ± {100 * estimate.error:5.3f} %"


def _flat(fields: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, tuple) and len(value) == 2 and hasattr(value, "error"):
            flat[name], flat[f"{name}_error"] = value
        else:
            flat[name] = value
    return flat
