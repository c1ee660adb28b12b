"""Which metadata a tensor's shape contradicts: shapes are made of numbers that keys hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement

from turbodflash_engine.metadata import Metadata

MOST_KEYS = 3
TOKENS = "tokenizer.ggml.tokens"


def contradicted(meta: Metadata, found: Sequence[int], expected: Sequence[int]) -> str:
    """Keys that wrong sizes come from: "'llama.feed_forward_length' is 1,536"; "" if none do."""
    wrong = [wanted for size, wanted in zip(found, expected, strict=False) if size != wanted]
    keys = dict.fromkeys(key for wanted in wrong for key in _sources(meta, wanted))
    told = [f"'{key}' is {value:,}" for key, value in _numbers(meta) if key in keys]
    return " and ".join(told[:MOST_KEYS])


def _sources(meta: Metadata, size: int) -> Iterator[str]:
    """Keys with this number; else pairs of keys whose product it is: heads and their size."""
    numbers = [(key, value) for key, value in _numbers(meta) if value > 1]
    single = [key for key, value in numbers if value == size]
    if single:
        yield from single
        return
    for (one, a), (other, b) in combinations_with_replacement(numbers, 2):
        if a * b == size:
            yield from (one, other)


def _numbers(meta: Metadata) -> Iterator[tuple[str, int]]:
    """Whole numbers of the architecture, and how many tokens there are."""
    for key, value in meta.for_architecture().items():
        if isinstance(value, int) and not isinstance(value, bool):
            yield key, value
    tokens = dict(meta.root.items()).get(TOKENS)
    if tokens is not None:
        yield TOKENS, len(tokens)
