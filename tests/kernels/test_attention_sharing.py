"""Who looks at which keys, when rows are few: a text of any length is for all threads."""

from __future__ import annotations

from itertools import pairwise, product

from hypothesis import given
from hypothesis import strategies as st

from turbodflash_kernels._cpu.chunk_words import (
    SPLITS_PER_THREAD,
    halved,
    place_of,
    queries_of,
    unit_of,
    units_of,
)
from turbodflash_kernels._cpu.words import first_task


def _units(chunks: int, queries: int, heads: int, threads: int) -> tuple[int, int, list[int]]:
    """Parts of the chunks, parts of the queries, and the units of all tasks."""
    few, most = halved(queries, heads, threads), threads * SPLITS_PER_THREAD
    splits, halves, units = units_of(chunks, most, few, heads)
    tasks = heads * most * (2 if few else 1)
    return splits, halves, [unit_of(task, tasks, units) for task in range(tasks)]


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 8), st.integers(1, 8))
def test_every_query_looks_at_every_chunk_once(
    chunks: int, queries: int, heads: int, threads: int
) -> None:
    splits, halves, units = _units(chunks, queries, heads, threads)
    looks: list[tuple[int, int, int]] = []
    for unit in filter(lambda unit: unit >= 0, units):
        head, first, end = place_of(unit // halves, splits, chunks)
        mine = range(*queries_of(unit, halves, queries))
        looks += ((head, chunk, query) for chunk in range(first, end) for query in mine)
    assert sorted(looks) == list(product(range(heads), range(chunks), range(queries)))


@given(st.integers(1, 300), st.integers(1, 40), st.integers(1, 32), st.integers(1, 32))
def test_no_thread_owns_more_than_its_share(
    chunks: int, queries: int, heads: int, threads: int
) -> None:
    _, _, units = _units(chunks, queries, heads, threads)
    busy = [unit >= 0 for unit in units]
    cuts = [first_task(len(units), thread, threads) for thread in range(threads + 1)]
    owned = [sum(busy[first:end]) for first, end in pairwise(cuts)]
    assert max(owned) <= -(-sum(busy) // threads)
