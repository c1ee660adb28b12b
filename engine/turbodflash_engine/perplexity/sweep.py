"""`sweep_cache_types`: what each type of the KV cache costs, and what it spoils."""

from __future__ import annotations

import gc
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

BASE = ("f16", "f16")
"""The cache that all others are compared with."""

Report = Callable[[Progress], None]
Types = tuple[str, str]


@dataclass(frozen=True, slots=True)
class SweepRow:
    """Types of keys and values. found: None where the model cannot take them; refused: why."""

    type_k: str
    type_v: str
    found: Perplexity | None
    refused: str = ""

    @property
    def name(self) -> str:
        """The type of both, or each of them."""
        return self.type_k if self.type_k == self.type_v else f"{self.type_k}/{self.type_v}"


def sweep_cache_types(
    options: LoadOptions,
    text: str,
    asked: PerplexityOptions,
    types: Sequence[Types],
    progress: Report | None = None,
) -> list[SweepRow]:
    """A row for f16 and for each of the types, measured over the same chunks against f16.

    types: of keys and of values. The weights are loaded anew for each. Raises what
    `measure_perplexity` raises for f16.
    """
    with TemporaryDirectory(prefix="turbodflash-") as folder:
        file = Path(folder) / "base"
        first = replace(asked, save=file, against=None)
        rows = [_measured(options, text, first, BASE, progress)]
        then = replace(asked, save=None, against=file, context=None, stride=None)
        for each in dict.fromkeys(types):
            if each != BASE:
                rows.append(_tried(options, text, then, each, progress))
    return rows


def _tried(
    options: LoadOptions,
    text: str,
    asked: PerplexityOptions,
    types: Types,
    progress: Report | None,
) -> SweepRow:
    try:
        return _measured(options, text, asked, types, progress)
    except TurbodflashError as error:
        return SweepRow(*types, None, str(error))


def _measured(
    options: LoadOptions,
    text: str,
    asked: PerplexityOptions,
    types: Types,
    progress: Report | None,
) -> SweepRow:
    gc.collect()  # the model before is a ring of references: as large as this one, and done with
    row = SweepRow(*types, None)
    with_types = replace(options, cache_type_k=types[0], cache_type_v=types[1])
    found = measure_perplexity(with_types, text, asked, progress, stage=f"perplexity {row.name}")
    return replace(row, found=found)
