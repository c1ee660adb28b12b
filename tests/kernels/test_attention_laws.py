"""What a row of attention may depend on: what it sees, at its positions, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.kernels.devices import PRESENT
from turbodflash_kernels.attend.cases import depths, random_tree
from turbodflash_kernels.attend.ref import path
from turbodflash_kernels.cases import normal
from turbodflash_kernels.device import KV, Device, open_device
from turbodflash_kernels.errors import NoKernel
from turbodflash_kernels.op import Rope

ROOM = 384
HEADS, KV_HEADS, HEAD_DIM = 6, 2, 32
ROPE = Rope("neox", HEAD_DIM, (100.0 ** -np.linspace(0, 1, HEAD_DIM // 2)).astype(np.float32))
FORMATS = ("f16", "f32")
SHAPE = {"heads": HEADS, "kv_heads": KV_HEADS, "head_dim": HEAD_DIM}
CONTEXT = normal(ROOM, 2 * KV_HEADS * HEAD_DIM, seed=1)
DRAFTED = normal(ROOM, 2 * KV_HEADS * HEAD_DIM, seed=2)
QUERIES = 2 * normal(ROOM, HEADS * HEAD_DIM, seed=3)

Floats = NDArray[np.float32]

few_examples = settings(deadline=None, max_examples=20, derandomize=True)
starts = st.one_of(st.integers(1, 260), st.integers(100, 130))
windows = st.sampled_from((0, 1, 5, 40, 150))


@st.composite
def trees(draw: st.DrawFn) -> NDArray[np.int32]:
    """Parents of 1 to 20 rows."""
    rows = draw(st.integers(1, 20))
    return np.array([-1, *(draw(st.integers(0, row - 1)) for row in range(1, rows))], np.int32)


class Memory(NamedTuple):
    """Keys and values on a device, and the ops on them."""

    device: Device
    kv: KV
    store: Any
    attend: Any

    def put(self, rows: Floats, positions: Sequence[int], slots: Sequence[int]) -> None:
        indices = (self._ints(positions), self._ints(slots))
        self.device.read(self.store(self.device.upload(rows), *indices))

    def look(
        self, q: Floats, positions: Sequence[int], parents: NDArray[np.int32] | None = None
    ) -> Floats:
        tree = [] if parents is None else [self.device.upload(parents)]
        y = self.attend(self.device.upload(q), self._ints(positions), *tree)
        return self.device.read(y).copy()

    def _ints(self, values: Sequence[int]) -> Any:
        return self.device.upload(np.array(values, np.int32))


def memory(device: Device, format: str, **rule: Any) -> Memory:
    """A full cache; every slot holds the context's row of its position."""
    kv = device.kv(format, format, ROOM, KV_HEADS, HEAD_DIM, HEAD_DIM)
    store = device.bind("rope_store", kv=kv, **{**SHAPE, "heads": 0}, rope=ROPE)
    attend = device.bind("attend", kv=kv, **SHAPE, scale=HEAD_DIM**-0.5, **rule)
    heads = CONTEXT.reshape(ROOM, 2, KV_HEADS, HEAD_DIM)
    kv.put_rows(0, kv.format_k.encode(heads[:, 0]), kv.format_v.encode(heads[:, 1]))
    return Memory(device, kv, store, attend)


@pytest.fixture(params=PRESENT, scope="module")
def device(request: pytest.FixtureRequest) -> Device:
    return open_device(request.param)


@few_examples
@given(start=starts, parents=trees(), window=windows, format=st.sampled_from(FORMATS))
def test_a_row_of_a_tree_has_the_bits_of_its_chain(
    device: Device, start: int, parents: NDArray[np.int32], window: int, format: str
) -> None:
    check_tree(device, start, parents, window, format)


# the root's tile is the first of its chunk and not, the chunk ends within the tree and not
@pytest.mark.parametrize(
    ("start", "rows", "window", "format"),
    [
        (60, 9, 5, "f16"),
        (250, 12, 0, "f16"),
        (256, 6, 150, "f16"),
        (300, 9, 40, "f32"),
        (318, 7, 0, "q4_0"),
        (1, 5, 0, "q5_1"),
        (255, 8, 1, "q8_0"),
    ],
)
def test_a_row_of_a_tree_has_the_bits_of_its_chain_on_a_gpu(
    start: int, rows: int, window: int, format: str
) -> None:
    check_tree(open_device("gpu"), start, random_tree(rows, start), window, format)


def check_tree(
    device: Device, start: int, parents: NDArray[np.int32], window: int, format: str
) -> None:
    rows, places = len(parents), start + depths(parents)
    tree = memory(device, format, window=window)
    tree.put(DRAFTED[:rows], places, range(start, start + rows))
    together = tree.look(QUERIES[:rows], places, parents)
    for leaf in sorted(set(range(rows)) - set(parents)):
        chain, branch = memory(device, format, window=window), path(parents, leaf)
        positions = range(start, start + len(branch))
        chain.put(DRAFTED[branch], positions, positions)
        alone = chain.look(QUERIES[branch], positions)
        np.testing.assert_array_equal(together[branch], alone)


@few_examples
@given(start=starts, parents=trees(), format=st.sampled_from(FORMATS))
def test_a_branch_of_a_tree_moves_to_where_its_chain_would_be(
    device: Device, start: int, parents: NDArray[np.int32], format: str
) -> None:
    rows, branch = len(parents), path(parents, len(parents) - 1)
    tree, chain = memory(device, format), memory(device, format)
    tree.put(DRAFTED[:rows], start + depths(parents), range(start, start + rows))
    tree.kv.move([start + int(row) for row in branch], start)
    stop = start + len(branch)
    chain.put(DRAFTED[branch], range(start, stop), range(start, stop))
    for moved, stored in zip(tree.kv.read(0, stop), chain.kv.read(0, stop), strict=True):
        np.testing.assert_array_equal(moved, stored)


@few_examples
@given(
    start=starts,
    rows=st.integers(1, 40),
    asked=st.sets(st.integers(0, 39)),
    window=windows,
    format=st.sampled_from(FORMATS),
)
def test_a_row_of_a_block_does_not_know_which_others_are_asked(
    device: Device, start: int, rows: int, asked: set[int], window: int, format: str
) -> None:
    check_block(device, start, rows, asked, window, format)


@pytest.mark.parametrize(("start", "window", "format"), [(240, 0, "f16"), (240, 40, "f32")])
def test_a_row_of_a_block_does_not_know_which_others_are_asked_on_a_gpu(
    start: int, window: int, format: str
) -> None:
    check_block(open_device("gpu"), start, 20, {1, 5, 7}, window, format)


def check_block(
    device: Device, start: int, rows: int, asked: set[int], window: int, format: str
) -> None:
    block = memory(device, format, causal=False, window=window)
    some = [row for row in sorted(asked) if row < rows - 1] + [rows - 1]  # it says how far they see
    whole = block.look(QUERIES[:rows], range(start, start + rows))
    part = block.look(QUERIES[some], [start + row for row in some])
    np.testing.assert_array_equal(part, whole[some])


@few_examples
@given(start=starts, rows=st.integers(1, 40), window=st.integers(1, 200), causal=st.booleans())
def test_what_lies_outside_of_a_window_counts_for_nothing(
    device: Device, start: int, rows: int, window: int, causal: bool
) -> None:
    check_window(device, start, rows, window, causal)


@pytest.mark.parametrize(("rows", "causal"), [(5, False), (12, True), (40, True)])
def test_what_lies_outside_of_a_window_counts_for_nothing_on_a_gpu(rows: int, causal: bool) -> None:
    check_window(open_device("gpu"), 120, rows, 90, causal)


def check_window(device: Device, start: int, rows: int, window: int, causal: bool) -> None:
    seeing = memory(device, "f16", window=window, causal=causal)
    before = seeing.look(QUERIES[:rows], range(start, start + rows))
    unseen = [*range(start + 1 - window), *range(start + rows, ROOM)]
    if unseen:
        seeing.put(DRAFTED[unseen], unseen, unseen)
    np.testing.assert_array_equal(seeing.look(QUERIES[:rows], range(start, start + rows)), before)


def test_a_captured_tree_is_replayed_with_other_parents(device: Device) -> None:
    tree, start = memory(device, "f16"), 120
    q = device.upload(QUERIES[:12])
    positions, parents = (device.upload(np.zeros(12, np.int32)) for _ in range(2))
    run = device.capture(lambda: tree.attend(q, positions, parents))
    chain, star = np.arange(-1, 11, dtype=np.int32), np.array([-1, *[0] * 11], np.int32)
    for shape in (chain, star):
        device.write(parents, shape)
        device.write(positions, start + depths(shape))
        direct = tree.look(QUERIES[:12], start + depths(shape), shape)
        np.testing.assert_array_equal(device.read(run()), direct)


@pytest.mark.parametrize(("sources", "to"), [([4, 6], 5), ([5, 5], 5), ([7, 6], 5), ([0], -1)])
def test_slots_do_not_move_up_nor_past_each_other(
    device: Device, sources: list[int], to: int
) -> None:
    full = memory(device, "f16")
    with pytest.raises(ValueError, match="cannot close up"):
        full.kv.move(sources, to)


def test_a_block_is_no_tree(device: Device) -> None:
    block = memory(device, "f16", causal=False)
    with pytest.raises(NoKernel, match="rows of a block see each other"):
        block.look(QUERIES[:2], [5, 6], np.array([-1, 0], np.int32))


@pytest.mark.parametrize("name", ["cpu", "gpu"])
def test_a_tree_that_is_too_large_is_refused_with_its_size(name: str) -> None:
    tree = memory(open_device(name), "f16")
    with pytest.raises(NoKernel, match="a tree of 33 rows is over the 32"):
        tree.look(QUERIES[:33], range(5, 38), np.arange(-1, 32, dtype=np.int32))
