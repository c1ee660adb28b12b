"""A ring that a window turns around in has the bits of a cache of all positions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.kernels.devices import PRESENT, poisoned
from turbodflash_kernels.attend.cases import depths, random_tree
from turbodflash_kernels.attend.ref import path
from turbodflash_kernels.cases import normal
from turbodflash_kernels.device import KV, RING_STEP, Device, open_device
from turbodflash_kernels.op import Rope

ROOM = 1200
HEADS, KV_HEADS, HEAD_DIM = 4, 2, 32
SHAPE = {"heads": HEADS, "kv_heads": KV_HEADS, "head_dim": HEAD_DIM}
ROPE = Rope("neox", HEAD_DIM, (100.0 ** -np.linspace(0, 1, HEAD_DIM // 2)).astype(np.float32))
TEXT = normal(ROOM, (HEADS + 2 * KV_HEADS) * HEAD_DIM, seed=1)
TYPES = (("f16", "f16"), ("f32", "f32"), ("q8_0", "q4_1"), ("turbo3", "iq4_nl"))

Floats = NDArray[np.float32]
few_examples = settings(deadline=None, max_examples=12, derandomize=True)


@pytest.fixture(params=PRESENT, scope="module")
def device(request: pytest.FixtureRequest) -> Device:
    return poisoned(request.param)


class Layer(NamedTuple):
    """Attention through a window, fed pass by pass."""

    device: Device
    kv: KV
    store: Any
    attend: Any

    @classmethod
    def of(cls, device: Device, types: tuple[str, str], window: int, ring: int) -> Layer:
        room = (ring or ROOM, KV_HEADS, HEAD_DIM, HEAD_DIM)
        kv = device.kv(*types, *room, ring=bool(ring))
        store = device.bind("rope_store", kv=kv, **SHAPE, rope=ROPE)
        attend = device.bind("attend", kv=kv, **SHAPE, scale=0.2, window=window)
        return cls(device, kv, store, attend)

    def __call__(self, start: int, rows: int, parents: NDArray[np.int32] | None = None) -> Floats:
        """What `rows` tokens say that stand after `start` others, as a chain or as a tree."""
        slots = np.arange(start, start + rows, dtype=np.int32)
        positions = slots if parents is None else np.int32(start) + depths(parents)
        tree = [] if parents is None else [self.device.upload(parents)]
        where = self.device.upload(positions)
        q = self.store(self.device.upload(TEXT[slots]), where, self.device.upload(slots))
        return self.device.read(self.attend(q, where, *tree)).copy()


def ring_for(window: int, rows: int, more: int = 0) -> int:
    return (-(-(window + rows - 1) // RING_STEP) + more) * RING_STEP


@few_examples
@given(
    types=st.sampled_from(TYPES),
    window=st.one_of(st.integers(1, 300), st.sampled_from((1, 127, 128, 129))),
    sizes=st.lists(st.integers(1, 130), min_size=1, max_size=12),
    more=st.integers(0, 1),
)
def test_passes_of_any_size_have_the_bits_of_a_full_cache(
    device: Device, types: tuple[str, str], window: int, sizes: list[int], more: int
) -> None:
    full = Layer.of(device, types, window, 0)
    ring = Layer.of(device, types, window, ring_for(window, max(sizes), more))
    assert ring.kv.nbytes <= full.kv.nbytes
    start = 0
    for rows in [*sizes, *sizes]:
        if start + rows > ROOM:
            break
        np.testing.assert_array_equal(ring(start, rows), full(start, rows))
        start += rows
    first = max(start - window + 1, 0)
    for kept, whole in zip(ring.kv.rows(first, start), full.kv.rows(first, start), strict=True):
        np.testing.assert_array_equal(kept, whole)


@few_examples
@given(
    types=st.sampled_from(TYPES),
    window=st.sampled_from((1, 20, 127, 200)),
    start=st.one_of(st.integers(0, 900), st.integers(120, 135), st.integers(380, 390)),
    rows=st.integers(1, 20),
    seed=st.integers(0, 99),
)
def test_so_has_a_tree_and_the_path_that_is_kept_of_it(
    device: Device, types: tuple[str, str], window: int, start: int, rows: int, seed: int
) -> None:
    parents = random_tree(rows, seed)
    kept = [int(row) for row in path(parents, rows - 1)]
    found = []
    for slots in (0, ring_for(window, 100)):
        layer = Layer.of(device, types, window, slots)
        for at in range(0, start, 100):
            layer(at, min(100, start - at))
        said = [layer(start, rows, parents)]
        layer.kv.move([start + row for row in kept], start)
        said += [layer(start + len(kept), 3)]
        found.append(said)
    for ring, full in zip(*reversed(found), strict=True):
        np.testing.assert_array_equal(ring, full)


@few_examples
@given(types=st.sampled_from(TYPES), first=st.integers(0, 1000), count=st.integers(1, 128))
def test_rows_come_back_as_they_were_put(
    device: Device, types: tuple[str, str], first: int, count: int
) -> None:
    room = (128, KV_HEADS, HEAD_DIM, HEAD_DIM)
    ring, other = (device.kv(*types, *room, ring=True) for _ in range(2))
    heads = TEXT[:count, : 2 * KV_HEADS * HEAD_DIM].reshape(count, 2, KV_HEADS, HEAD_DIM)
    ring.put_rows(first, ring.format_k.encode(heads[:, 0]), ring.format_v.encode(heads[:, 1]))
    other.put_rows(first, *ring.rows(first, first + count))
    for one, two in zip(
        ring.read(first, first + count), other.read(first, first + count), strict=True
    ):
        np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(
        np.roll(ring.rows(0, 128)[0], -first, axis=0)[:count], other.rows(first, first + count)[0]
    )


def test_a_ring_turns_around_on_a_gpu() -> None:
    device, window = poisoned("gpu"), 60
    full, ring = (Layer.of(device, ("f16", "q8_0"), window, slots) for slots in (0, 128))
    start = 0
    for rows in (34, 3, 40, 34, 1, 34):
        np.testing.assert_array_equal(ring(start, rows), full(start, rows))
        start += rows
    tree = random_tree(5, 1)
    np.testing.assert_array_equal(ring(start, 5, tree), full(start, 5, tree))
    for layer in (ring, full):
        layer.kv.move([start + 2, start + 4], start)
    np.testing.assert_array_equal(ring(start + 2, 2), full(start + 2, 2))


@pytest.mark.parametrize("name", PRESENT)
@pytest.mark.parametrize("slots", [0, 1, 127, 200])
def test_what_is_no_multiple_makes_no_ring(name: str, slots: int) -> None:
    with pytest.raises(ValueError, match=f"{slots} slots make no ring, a multiple of 128 does"):
        open_device(name).kv("f16", "f16", slots, 1, 32, 32, ring=True)


@pytest.mark.parametrize("name", PRESENT)
def test_a_captured_pass_turns_around(name: str) -> None:
    """Only positions change between two runs of it."""
    device = open_device(name)
    full, ring = (Layer.of(device, ("f16", "f16"), 50, slots) for slots in (0, 128))
    positions, rows = device.upload(np.zeros(2, np.int32)), device.upload(TEXT[:2])
    runs = [
        device.capture(lambda layer=layer: layer.attend(layer.store(rows, positions), positions))
        for layer in (full, ring)
    ]
    for start in range(0, 500, 2):
        device.write(positions, np.array([start, start + 1], np.int32))
        device.write(rows, TEXT[start : start + 2])
        expected = device.read(runs[0]()).copy()
        np.testing.assert_array_equal(device.read(runs[1]()), expected)
