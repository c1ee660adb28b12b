"""Doing once, before anybody waits, what is slow the first time."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

from turbodflash_engine.decode.target import Target
from turbodflash_engine.drafters._base import Drafter

ROWS = 8  # passes of so many rows and fewer are what a draft is verified in
SECONDS = 0.1  # on a model so slow that this is not enough, recording passes is nothing


def warm_up(model: Target, drafter: Drafter, token: int, vocabulary: int) -> None:
    """Use a model and a drafter that are empty, and leave them so.

    One pass is made in any case. Passes of each number of rows that drafts are verified in follow,
    as long as it takes little time. Each finds its largest logit of so many, as greedy decoding
    does: without, the head would stay cold.
    """
    _pass(model, drafter, [token], vocabulary)
    if drafter.longest and model.cache.capacity > ROWS:
        drafter.draft([token, token], drafter.longest)
        began = perf_counter()
        for rows in range(2, min(drafter.longest + 1, ROWS) + 1):
            if perf_counter() - began > SECONDS:
                break
            _pass(model, drafter, [token] * rows, vocabulary)
    model.cache.truncate(0)
    drafter.truncate(0)


def _pass(model: Target, drafter: Drafter, run: Sequence[int], vocabulary: int) -> None:
    """One that the drafter sees if it is the first, and that never happened if it is not."""
    with model.cache.trial() as trial:
        output = model(run, logits=len(run), taps=drafter.taps)
        output.largest(1, vocabulary)
        if len(run) == 1:
            trial.keep(1)
            drafter.observe(run, range(1), output.taps)
