"""The trial law: keeping n of a block is the same as feeding only those n."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.devices import PRESENT, poisoned
from turbodflash_engine.cache import Cache, DenseLayer
from turbodflash_engine.errors import DoesNotFit
from turbodflash_kernels.op import Rope

CAPACITY = 64
HEADS, HEAD_DIM = 2, 16
FORMATS = ("f32", "f16")

tokens = st.lists(st.integers(0, 99), min_size=1, max_size=6)
blocks = st.lists(st.tuples(tokens, st.integers(0, 6)), max_size=8)
trees = st.lists(st.tuples(tokens, st.sets(st.integers(1, 5))), max_size=8)
"""The tokens of each, and which of its rows, beside the root, are on the path that is kept."""

on_every_device = pytest.mark.parametrize("device", PRESENT)


class Recurrent:
    """A layer whose state folds all tokens into one number: it can only undo what it kept."""

    nbytes = 8
    can_forget = True
    passive = False
    widest = 10**9

    def __init__(self) -> None:
        self.state, self.length = 1, 0
        self.trail: list[int] = []

    def feed(self, token: int) -> None:
        self.trail.append(token)
        self.state = (self.state * 31 + token) % 1_000_003

    def expect(self, count: int) -> None:
        pass

    def advance(self, length: int) -> None:
        self.length = length

    def checkpoint(self) -> None:
        pass

    def mark(self, length: int) -> int:
        self.trail = []
        return self.state

    def restore(self, mark: int, kept: Sequence[int]) -> None:
        trail, self.state = self.trail, mark
        self.length -= len(trail) - len(kept)
        for row in kept:
            self.feed(trail[row])

    def reach(self, length: int) -> int:
        return length if length == self.length else 0

    def truncate(self, length: int) -> None:
        if length < self.length:
            self.state, self.length, self.trail = 1, 0, []


class Memory:
    """A stack of a dense and a recurrent layer, fed without a model."""

    def __init__(self, name: str = "reference", format: str = "f32") -> None:
        self.device = device = poisoned(name)
        self.kv = device.kv(format, format, CAPACITY, HEADS, HEAD_DIM, HEAD_DIM)
        still = Rope("norm", HEAD_DIM, np.zeros(HEAD_DIM // 2, np.float32))
        shape = {"heads": HEADS, "kv_heads": HEADS, "head_dim": HEAD_DIM}
        self.store = device.bind("rope_store", kv=self.kv, **shape, rope=still)
        self.recurrent = Recurrent()
        self.cache = Cache([DenseLayer(self.kv), self.recurrent], CAPACITY)

    def feed(self, block: Sequence[int]) -> None:
        rows = np.repeat(np.array(block, np.float32)[:, None], 3 * HEADS * HEAD_DIM, axis=1)
        slots = np.arange(len(block), dtype=np.int32) + self.cache.length
        self.store(self.device.upload(rows), self.device.upload(slots))
        for token in block:
            self.recurrent.feed(token)
        self.cache.advance(len(block))

    def contents(self) -> tuple[object, ...]:
        k, v = self.kv.read(0, self.cache.length)
        return self.cache.length, k.tolist(), v.tolist(), self.recurrent.state


@settings(deadline=None)
@given(blocks)
def test_keeping_n_of_a_block_is_the_same_as_feeding_only_those(
    blocks: list[tuple[list[int], int]],
) -> None:
    tried, straight = Memory(), Memory()
    for block, wanted in blocks:
        kept = min(wanted, len(block))
        with tried.cache.trial() as trial:
            tried.feed(block)
            trial.keep(kept)
        straight.feed(block[:kept])
    assert tried.contents() == straight.contents()


@pytest.mark.parametrize("format", FORMATS)
@on_every_device
@settings(deadline=None)
@given(trees)
def test_keeping_a_path_of_a_tree_is_the_same_as_feeding_only_that(
    device: str, format: str, trees: list[tuple[list[int], set[int]]]
) -> None:
    tried, straight = Memory(device, format), Memory(device, format)
    for tree, below in trees:
        path = [0, *sorted(row for row in below if row < len(tree))]
        with tried.cache.trial() as trial:
            tried.feed(tree)
            trial.keep_path(path)
        straight.feed([tree[row] for row in path])
    assert tried.contents() == straight.contents()


@settings(deadline=None)
@given(tokens, tokens, st.booleans())
def test_an_exception_keeps_nothing(before: list[int], block: list[int], claimed: bool) -> None:
    memory = Memory()
    memory.feed(before)
    contents = memory.contents()

    def fail() -> None:
        with memory.cache.trial() as trial:
            memory.feed(block)
            if claimed:
                trial.keep(len(block))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert memory.contents() == contents


@settings(deadline=None)
@given(tokens, st.integers(0, 6))
def test_a_dense_cache_is_cut_to_any_beginning(block: list[int], wanted: int) -> None:
    length = min(wanted, len(block))
    cut, straight = Memory(), Memory()
    for memory in (cut, straight):
        memory.cache.layers = memory.cache.layers[:1]
    cut.feed(block)
    cut.cache.truncate(length)
    straight.feed(block[:length])
    assert cut.contents()[:3] == straight.contents()[:3]


@pytest.mark.parametrize("claim", [-1, 4])
def test_more_than_was_fed_cannot_be_kept(claim: int) -> None:
    memory = Memory()

    def overclaim() -> None:
        with memory.cache.trial() as trial:
            memory.feed([1, 2, 3])
            trial.keep(claim)

    with pytest.raises(ValueError, match=f"cannot keep {claim} tokens of a trial that was fed 3"):
        overclaim()
    assert memory.cache.length == 0


@pytest.mark.parametrize("path", [[], [1], [0, 2, 1], [0, 1, 1], [0, 3], [-1, 0]], ids=str)
def test_what_is_no_path_from_the_root_cannot_be_kept(path: list[int]) -> None:
    memory = Memory()

    def misclaim() -> None:
        with memory.cache.trial() as trial:
            memory.feed([1, 2, 3])
            trial.keep_path(path)

    with pytest.raises(ValueError, match="is no path from row 0 of a trial that was fed 3"):
        misclaim()
    assert memory.cache.length == 0


def test_a_full_cache_says_so_and_stays_as_it_is() -> None:
    memory = Memory()
    memory.cache.advance(CAPACITY - 1)
    memory.cache.reserve(1)
    with pytest.raises(DoesNotFit, match="2 tokens more than 63 are over 64"):
        memory.cache.reserve(2)
    with pytest.raises(DoesNotFit):
        memory.cache.advance(2)
    assert memory.cache.length == CAPACITY - 1


@given(tokens, st.integers(0, 6), st.integers(0, 6))
@settings(deadline=None)
def test_what_is_forgotten_leaves_no_gap(block: list[int], one: int, other: int) -> None:
    """Of keys that know no position: as if only the others had come."""
    start, stop = sorted(min(each, len(block)) for each in (one, other))
    forgetful, straight = Memory(), Memory()
    for memory in (forgetful, straight):
        memory.cache.layers = memory.cache.layers[:1]
    forgetful.feed(block)
    forgetful.cache.forget(start, stop)
    straight.feed(block[:start] + block[stop:])
    assert forgetful.contents()[:3] == straight.contents()[:3]


@pytest.mark.parametrize(("start", "stop"), [(-1, 1), (2, 1), (1, 4)])
def test_a_cache_does_not_forget_what_it_does_not_hold(start: int, stop: int) -> None:
    memory = Memory()
    memory.cache.layers = memory.cache.layers[:1]
    memory.feed([1, 2, 3])
    with pytest.raises(ValueError, match="cannot forget tokens"):
        memory.cache.forget(start, stop)
    assert memory.cache.length == 3


@pytest.mark.parametrize("length", [-1, 1])
def test_a_cache_is_not_cut_to_what_it_does_not_hold(length: int) -> None:
    with pytest.raises(ValueError, match=f"cannot cut a cache of 0 tokens to {length}"):
        Memory().cache.truncate(length)
