"""Who looks at which keys, when rows are few: a text of any length is for all threads."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbodflash_kernels._cpu.chunk_words import SPLITS_PER_THREAD
from turbodflash_kernels._cpu.query_kernels import split_of
from turbodflash_kernels._cpu.words import first_task

place_of = split_of.py_func


@given(st.integers(1, 200))
def test_every_split_is_looked_at_once(splits: int) -> None:
    assert sorted(place_of(place, splits) for place in range(splits)) == list(range(splits))


@pytest.mark.parametrize("threads", [2, 3, 4, 6, 8, 16])
def test_no_thread_owns_more_than_its_share_of_a_text(threads: int) -> None:
    """Tasks of splits that a short text does not have are nothing to do. A thread's tasks may be of
    two heads, so it may own one more of each four threads'."""
    splits = threads * SPLITS_PER_THREAD
    for heads in (*range(1, 9), 16):
        cuts = [first_task(heads * splits, thread, threads) for thread in range(threads + 1)]
        for there in range(1, splits + 1):
            some = [place_of(task % splits, splits) < there for task in range(heads * splits)]
            owned = [sum(some[first:end]) for first, end in pairwise(cuts)]
            assert max(owned) <= -(-heads * there // threads) + threads // 4
