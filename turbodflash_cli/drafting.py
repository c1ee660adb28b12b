"""From the options about drafting to what the engine takes; what cannot go together is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from turbodflash_cli.flags import DraftFlags, ModelFlags, NgramFlags, flags_of
from turbodflash_cli.flags.compute import layers_asked_for
from turbodflash_cli.flags.ngram import type_and_setting
from turbodflash_cli.progress import Bar
from turbodflash_cli.terminal import Terminal
from turbodflash_engine import BadUsage, SpecOptions

ENDLESS = 64
"""Drafted tokens a step that synthetic acceptance foresees where nobody said how many."""

OWN = "draft-mtp"
"""The type that the model's own file may hold a draft of."""

OF_THE_DRAFT = (
    *("dflash", "eagle3", "draft_context", "draft_threads", "draft_threads_batch"),
    *("draft_gpu_layers", "draft_device", "draft_cache_type_k", "draft_cache_type_v", "inject"),
)
"""Fields that mean nothing without a draft's file."""


def spec_options(draft: DraftFlags, ngram: NgramFlags) -> SpecOptions | None:
    """How tokens are drafted; None = they are not. The file is still as it was written."""
    types = _types(draft)
    if types == ("none",):
        return None
    _check_companions(draft, ngram, types)
    if not types and not _has_file(draft):
        return None
    given: dict[str, Any] = {
        "model": draft.draft_model,
        "types": types,
        "n_max": draft.n_max,
        "n_min": draft.n_min,
        "p_min": draft.p_min,
        "context": draft.draft_context,
        "threads": _threads(draft.draft_threads),
        "threads_batch": _threads(draft.draft_threads_batch),
        "cache_type_k": draft.draft_cache_type_k,
        "cache_type_v": draft.draft_cache_type_v,
        "device": draft.draft_device,
        "gpu_layers": layers_asked_for(draft.draft_gpu_layers),
        "width": None if draft.width == -1 else draft.width,
        "fallback": draft.fallback,
        "tree": draft.tree,
        "inject": draft.inject,
        "synth_rates": _synthetic(draft),
    }
    known = {name: value for name, value in given.items() if value is not None}
    return _with_sizes(SpecOptions(**known), ngram)


def find_draft(
    terminal: Terminal, spec: SpecOptions | None, draft: DraftFlags, model: ModelFlags
) -> SpecOptions | None:
    """The same options with a file that is there, fetched if `-hfd` says so."""
    if not _has_file(draft):
        return spec
    if spec is None:
        terminal.note("note: --spec-type none: the draft is not loaded.")
        return None
    if draft.draft_hf_repo is None:
        return replace(spec, model=_existing(spec.model))
    from turbodflash_cli.fetch import resolve

    bar = Bar(terminal)
    name = None if draft.draft_model is None else str(draft.draft_model)
    try:
        found = resolve(
            None,
            draft.draft_hf_repo,
            name,
            model.offline,
            bar.report,
            token=model.hf_token,
            draft=True,
        )
    finally:
        bar.clear()
    return replace(spec, model=found)


def conditional(rates: tuple[float, ...]) -> tuple[float, ...]:
    """Chances of the i-th token once those before it were accepted, from shares of all steps."""
    before = (1.0, *rates[:-1])
    return tuple(rate / past if past else 0.0 for past, rate in zip(before, rates, strict=True))


def rate_of_length(length: float, most: int) -> float:
    """The chance r of every token for which a step of `most` drafted ones brings `length`.

    Solves 1 + r + r^2 + ... + r^most = length, with 1 <= length <= most + 1.
    """
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if sum(middle**power for power in range(most + 1)) < length:
            low = middle
        else:
            high = middle
    return high


def _types(draft: DraftFlags) -> tuple[str, ...]:
    """Types asked for by any option, each once, in the order of their options."""
    if draft.dflash and draft.eagle3:
        raise BadUsage("--dflash and --eagle3 exclude each other.", hint="the draft is one of them")
    written = [kind for kinds in draft.spec_type for kind in kinds]
    written += ["draft-dflash"] if draft.dflash else []
    written += ["draft-eagle3"] if draft.eagle3 else []
    written += ["ngram-mod"] if draft.spec_default else []
    types = tuple(dict.fromkeys(written))
    if "none" in types and len(types) > 1:
        others = ", ".join(kind for kind in types if kind != "none")
        raise BadUsage(f"--spec-type none excludes {others}.", hint="leave one of them out")
    of_file = [kind for kind in types if kind.startswith("draft-")]
    if len(of_file) > 1:
        raise BadUsage(
            f"a draft is of one kind, not {' and '.join(of_file)}.",
            hint="leave the kind out; the file says what it is",
        )
    return types


def _check_companions(draft: DraftFlags, ngram: NgramFlags, types: tuple[str, ...]) -> None:
    """Refuse options that have nothing to act on."""
    if not _has_file(draft) and OWN not in types:
        for name in _without_file(draft, types):
            raise BadUsage(f"{name} needs a draft model.", hint="-md draft.gguf")
    if not types and not _has_file(draft) and draft.typed:
        raise BadUsage(
            f"{next(iter(draft.typed.values()))} has nothing to act on: nobody drafts.",
            hint="-md draft.gguf, or --spec-type ngram-simple",
        )
    for field, flag in flags_of(NgramFlags):
        kind, _ = type_and_setting(field)
        if getattr(ngram, field) is not None and kind not in types:
            raise BadUsage(f"{flag.names[0]} needs --spec-type {kind}.")


def _without_file(draft: DraftFlags, types: tuple[str, ...]) -> Iterator[str]:
    """Spellings of what needs a draft's file."""
    yield from (draft.typed[name] for name in OF_THE_DRAFT if name in draft.typed)
    yield from (f"--spec-type {kind}" for kind in types if kind.startswith("draft-"))


def _has_file(draft: DraftFlags) -> bool:
    return draft.draft_model is not None or draft.draft_hf_repo is not None


def _existing(file: Path | None) -> Path:
    assert file is not None
    if file.is_dir():
        raise BadUsage(f"{str(file)!r} is a folder, not a draft model.", hint="-md draft.gguf")
    if not file.is_file():
        raise BadUsage(f"draft model file not found: {file}", hint="check the path given to -md")
    return file


def _synthetic(draft: DraftFlags) -> tuple[float, ...]:
    """Chances of synthetic acceptance; none = acceptance is real."""
    length, rates = draft.synth_len, draft.synth_rates
    if length is not None and rates is not None:
        raise BadUsage(
            "--spec-synth-len and --spec-synth-rates exclude each other.", hint="give one of them"
        )
    most = draft.n_max if draft.width in (None, -1) else draft.width
    if rates is not None:
        if most is not None and len(rates) > most:
            raise BadUsage(f"--spec-synth-rates has {len(rates)} rates for {most} drafted tokens.")
        return conditional(rates)
    if length is None:
        return ()
    if most is not None and length > most + 1:
        raise BadUsage(
            f"--spec-synth-len {length:g} is more than a step can bring: {most} drafted tokens "
            "and one more.",
            hint="raise --spec-draft-n-max, or ask for less",
        )
    steps = ENDLESS if most is None else most
    return (rate_of_length(length, steps),) * steps


def _with_sizes(spec: SpecOptions, ngram: NgramFlags) -> SpecOptions:
    """The options with what was written about n-grams."""
    written: dict[str, dict[str, int]] = {}
    for field, _ in flags_of(NgramFlags):
        if (value := getattr(ngram, field)) is not None:
            kind, setting = type_and_setting(field)
            written.setdefault(kind.replace("-", "_"), {})[setting] = value
    sizes: dict[str, Any] = {
        name: replace(getattr(spec, name), **settings) for name, settings in written.items()
    }
    return replace(spec, **sizes)


def _threads(given: int | None) -> int | None:
    return None if given is None else max(given, 0)
