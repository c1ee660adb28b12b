"""Captured steps: a variant is captured once; those of many rows are forgotten in turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.engine.spec_runs import draft_for, runs
from tests.engine.tiny_models import tensors_of, tiny
from tests.golden_files import GOLDEN
from tests.kernels.devices import PRESENT, poisoned
from turbodflash_engine.layers.steps import FEW_ROWS, WIDE_STEPS, Steps, Threads
from turbodflash_engine.options import SpecOptions
from turbodflash_kernels._reference import ReferenceDevice
from turbodflash_kernels.cases import random_part
from turbodflash_kernels.op import Array

T = TypeVar("T")
ROWS, COLS = 40, 32


class Counting(ReferenceDevice):
    def __init__(self) -> None:
        super().__init__()
        self.threads: list[int] = []

    def capture(self, step: Callable[[], T], threads: int = 0, rows: int = 1) -> Callable[[], T]:
        self.threads.append(threads)
        return super().capture(step, threads, rows)


def ids(*tokens: int) -> NDArray[np.int32]:
    return np.array(tokens, np.int32)


def captures(sizes: list[int]) -> int:
    """How often passes of so many rows, one after the other, are captured."""
    device = Counting()
    steps: Steps[int, Array] = Steps(device, lambda key, tokens: tokens)
    for size in sizes:
        assert len(steps(size, np.zeros(size, np.int32))) == size
    return len(device.threads)


@given(st.lists(st.integers(1, FEW_ROWS)))
def test_few_rows_are_captured_once(sizes: list[int]) -> None:
    assert captures(sizes) == len(set(sizes))


@given(st.lists(st.sampled_from([1, 2, *range(FEW_ROWS + 1, FEW_ROWS + WIDE_STEPS + 1)])))
def test_a_chunk_and_a_rest_beside_few_rows_stay_captured(sizes: list[int]) -> None:
    assert captures(sizes) == len(set(sizes))


def test_of_the_wide_ones_the_one_used_longest_ago_is_forgotten() -> None:
    assert captures([17, 18, 17, 19, 17, 18]) == 4


def test_wide_variants_have_threads_of_their_own() -> None:
    device = Counting()
    steps: Steps[int, Array] = Steps(device, lambda key, tokens: tokens, Threads(3, 5))
    for size in (1, FEW_ROWS, FEW_ROWS + 1, 40):
        steps(size, np.zeros(size, np.int32))
    assert device.threads == [3, 3, 5, 5]


DRAFTS = ["llama", *sorted(path.name[5:-8] for path in GOLDEN.glob("models/tiny-*--qwen3.gguf.xz"))]


@pytest.mark.parametrize("name", DRAFTS)
@pytest.mark.parametrize(("threads", "batch", "few", "wide"), [(3, 5, 3, 5), (3, 0, 3, 3)])
def test_drafts_pass_with_the_threads_asked_for(
    name: str, threads: int, batch: int, few: int, wide: int
) -> None:
    device = Counting()
    target = tiny("qwen3", device)
    target([1])
    options = SpecOptions(threads=threads, threads_batch=batch)
    drafter = draft_for(target, device, tensors_of(name), options)
    text = runs("dflash--qwen3")[3]["prompt"][:60]
    taps = [np.zeros((len(text) - 1, 64), np.float32) for _ in drafter.taps]
    device.threads.clear()
    drafter.observe(text[:-1], range(len(text) - 1), taps)
    drafter.draft(text, 5)
    assert set(device.threads) == {few, wide}


@pytest.mark.parametrize("name", PRESENT)
def test_a_step_sees_the_inputs_of_each_run(name: str) -> None:
    device = poisoned(name)
    table = device.pack([random_part("f32", ROWS, COLS, seed=1)], COLS)
    embed = device.bind("embed", table=table, scale=1.0)
    rows = device.read(embed(device.upload(np.arange(ROWS, dtype=np.int32)))).copy()

    steps: Steps[tuple[int, str], Array] = Steps(device, lambda key, tokens: embed(tokens))
    for tokens in (ids(3), ids(5), ids(7, 0), ids(3), ids(*range(20)), ids(*range(20, 40))):
        found = device.read(steps((len(tokens), "rows"), tokens))
        np.testing.assert_array_equal(found, rows[tokens])


def test_inputs_are_as_many_as_when_it_was_captured() -> None:
    steps: Steps[int, Array] = Steps(ReferenceDevice(), lambda key, *inputs: inputs)
    steps(1, ids(1), ids(2))
    with pytest.raises(ValueError, match="shorter"):
        steps(1, ids(1))
