"""Who looks at which keys, when rows are few: a text of any length is for all threads."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from turbodflash_kernels._cpu.query_kernels import split_of
from turbodflash_kernels._cpu.words import first_task
from turbodflash_kernels.attend.launch import SPLITS_PER_THREAD

place_of = split_of.py_func


@given(st.integers(1, 200))
def test_every_split_is_looked_at_once(splits: int) -> None:
    assert sorted(place_of(place, splits) for place in range(splits)) == list(range(splits))


@given(st.sampled_from((2, 4, 8)), st.integers(1, 16), st.data())
def test_no_thread_owns_more_than_its_share_of_a_text(
    threads: int, heads: int, data: st.DataObject
) -> None:
    """Tasks of splits that a short text does not have are nothing to do."""
    splits = threads * SPLITS_PER_THREAD
    there = data.draw(st.integers(1, splits), "splits of the text")
    some = [place_of(task % splits, splits) < there for task in range(heads * splits)]
    cuts = [first_task(len(some), thread, threads) for thread in range(threads + 1)]
    owned = [sum(some[first:end]) for first, end in pairwise(cuts)]
    assert max(owned) <= -(-heads * there // threads) + threads // 2 - 1
