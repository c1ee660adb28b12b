"""How well a model predicts a text, and how far one way of computing it is from another.

windows.py    a text cut into chunks, and the passes      scoring.py     logits to surprise
estimates.py  means and their errors                      likely.py      distributions, kept small
divergence.py what two readings differ in                 base_file.py   a reading to compare with
reading.py    a model reads all chunks                    measure.py, sweep.py   the front
"""

from turbodflash_engine.perplexity.divergence import Divergence
from turbodflash_engine.perplexity.estimates import Estimate
from turbodflash_engine.perplexity.measure import (
    Perplexity,
    PerplexityOptions,
    measure_perplexity,
)
from turbodflash_engine.perplexity.sweep import SweepRow, sweep_cache_types

__all__ = [
    "Divergence",
    "Estimate",
    "Perplexity",
    "PerplexityOptions",
    "SweepRow",
    "measure_perplexity",
    "sweep_cache_types",
]
