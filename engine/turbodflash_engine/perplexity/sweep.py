"""`sweep_cache_types`: what each type of the KV cache costs, and what it spoils."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from turbodflash_engine.errors import TurbodflashError
from turbodflash_engine.events import Progress
from turbodflash_engine.options import LoadOptions
from turbodflash_engine.perplexity.measure import (
    Perplexity,
    PerplexityOptions,
    measure_perplexity,
)

BASE = "f16"
"""The cache that all others are compared with."""

Report = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class SweepRow:
    """One type for keys and values. found: None where the model cannot take it; refused: why."""

    cache_type: str
    found: Perplexity | None
    refused: str = ""


def sweep_cache_types(
    options: LoadOptions,
    text: str,
    asked: PerplexityOptions,
    types: Sequence[str],
    progress: Report | None = None,
) -> list[SweepRow]:
    """A row for f16 and for each of the types, measured over the same chunks against f16.

    The weights are loaded anew for each. Raises what `measure_perplexity` raises for f16.
    """
    with TemporaryDirectory(prefix="turbodflash-") as folder:
        file = Path(folder) / "base"
        first = replace(asked, save=file, against=None)
        rows = [SweepRow(BASE, _measure(options, text, first, BASE, progress))]
        then = replace(asked, save=None, against=file, context=None, stride=None)
        for cache_type in dict.fromkeys(types):
            if cache_type != BASE:
                rows.append(_try(options, text, then, cache_type, progress))
    return rows


def _try(
    options: LoadOptions,
    text: str,
    asked: PerplexityOptions,
    cache_type: str,
    progress: Report | None,
) -> SweepRow:
    try:
        return SweepRow(cache_type, _measure(options, text, asked, cache_type, progress))
    except TurbodflashError as error:
        return SweepRow(cache_type, None, str(error))


def _measure(
    options: LoadOptions,
    text: str,
    asked: PerplexityOptions,
    cache_type: str,
    progress: Report | None,
) -> Perplexity:
    with_type = replace(options, cache_type_k=cache_type, cache_type_v=cache_type)
    return measure_perplexity(with_type, text, asked, progress, stage=f"perplexity {cache_type}")
