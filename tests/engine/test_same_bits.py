"""How a model is run never changes what it says: threads and batches do not touch a bit."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.engine.tiny_models import path_of
from tests.engine.toy import all_of
from turbodflash_engine.decode import prefill
from turbodflash_engine.drafters._base import NoDrafter
from turbodflash_engine.loading import load
from turbodflash_engine.options import LoadOptions

MODEL = "llama-q-q4_1"
PROMPT = np.random.default_rng(5).integers(3, 250, 150).tolist()


@cache
def bits(**options: Any) -> bytes:
    """The logits after a prompt, and after each of a few tokens that follow one by one."""
    asked = LoadOptions(path_of(MODEL), context=256, **options)
    model = load(asked).model
    reading = prefill(model, NoDrafter(), PROMPT, min(asked.batch, asked.ubatch), all_of)
    try:
        while True:
            next(reading)
    except StopIteration as end:
        rows = [seen.logits[None] for seen in end.value]
    rows += [model([token]).logits.copy() for token in PROMPT[:4]]
    return np.concatenate(rows).tobytes()


@pytest.mark.parametrize(
    "options",
    [
        {"threads": 1},
        {"threads": 2},
        {"threads": 3},
        {"threads": 1, "threads_batch": 2},
        {"threads": 2, "threads_batch": 1},
        {"ubatch": 1},
        {"ubatch": 7},
        {"ubatch": 64, "batch": 100},
        {"batch": 3},
        {"threads": 3, "ubatch": 33},
        {"warmup": False},
    ],
    ids=str,
)
def test_the_logits_are_the_same(options: dict[str, Any]) -> None:
    assert bits(**options) == bits(threads=1, ubatch=512)
