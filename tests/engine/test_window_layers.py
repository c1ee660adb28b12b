"""A layer that looks through a window remembers no more, and nobody can tell by its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.test_lossless import Bench
from tests.engine.tiny_models import all_rows, build, golden, path_of, tensors_of
from tests.kernels.devices import PRESENT
from turbodflash_engine import plugins
from turbodflash_engine.cache import Cache, DenseLayer, KVShape, WindowLayer
from turbodflash_engine.decode.loop import Step
from turbodflash_engine.drafters._base import NoDrafter
from turbodflash_engine.drafters.draft_model import DraftModel
from turbodflash_engine.layers.rope import RopeOverrides
from turbodflash_engine.loading import load
from turbodflash_engine.models._base import CachePlan, Model
from turbodflash_engine.options import LoadOptions, SampleOptions, SpecOptions
from turbodflash_engine.sizing import layer_caches
from turbodflash_kernels.device import Device, open_device
from turbodflash_kernels.op import Rope

HEADS, HEAD_DIM, ROOM = 2, 16, 900
WINDOW, RING = 40, 128
STILL = Rope("norm", HEAD_DIM, np.zeros(HEAD_DIM // 2, np.float32))


@cache
def one_thread(name: str) -> Device:
    """The device with NaN in fresh memory; of many short passes, threads would only wait."""
    device = open_device(name, 1)
    device.poison = True
    return device


few = settings(deadline=None, max_examples=20)
sizes = st.integers(1, RING - WINDOW + 1)
deeds = st.lists(
    st.one_of(
        st.tuples(st.just("feed"), sizes),
        st.tuples(st.just("try"), st.tuples(sizes, st.integers(0, 100))),
        st.tuples(st.just("branch"), st.sets(st.integers(1, 12), min_size=1, max_size=6)),
        st.tuples(st.just("fail"), sizes),
        st.tuples(st.just("cut"), st.integers(0, 120)),
        st.tuples(st.just("move"), st.none()),
    ),
    max_size=25,
)


class Memory:
    """One layer, fed without a model."""

    def __init__(self, layer: DenseLayer, device: Any) -> None:
        self.layer, self.device = layer, device
        shape = {"heads": HEADS, "kv_heads": HEADS, "head_dim": HEAD_DIM}
        self.store = device.bind("rope_store", kv=layer.kv, **shape, rope=STILL)
        self.cache = Cache([layer], ROOM)

    @classmethod
    def of(cls, name: str, ring: bool) -> Memory:
        device = one_thread(name)
        room = (RING if ring else ROOM, HEADS, HEAD_DIM, HEAD_DIM)
        kv = device.kv("f16", "q8_0" if name == "cpu" else "f16", *room, ring=ring)
        return cls(WindowLayer(kv, WINDOW) if ring else DenseLayer(kv), device)

    def feed(self, tokens: Sequence[int], fail: bool = False) -> None:
        self.cache.expect(tokens)
        rows = np.repeat(np.array(tokens, np.float32)[:, None], 3 * HEADS * HEAD_DIM, axis=1)
        slots = np.arange(len(tokens), dtype=np.int32) + self.cache.length
        self.store(self.device.upload(rows), self.device.upload(slots))
        if fail:
            self.device.flush()
            raise KeyboardInterrupt
        self.cache.advance(len(tokens))

    def seen(self) -> tuple[Any, ...]:
        """All that the next token sees."""
        stop = self.cache.length
        k, v = self.layer.kv.read(max(stop - WINDOW + 1, 0), stop)
        return stop, k.tolist(), v.tolist()


class Pair:
    """A ring and a full cache that live through the same."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ring, self.full = Memory.of(name, ring=True), Memory.of(name, ring=False)
        self.text: list[int] = []
        self._next = self._furthest = 0

    def new(self, count: int) -> list[int]:
        count = min(count, ROOM - len(self.text))
        self._next += count
        self._furthest = max(self._furthest, len(self.text) + count)
        return [1 + at % 97 for at in range(self._next - count, self._next)]

    def feed(self, count: int) -> None:
        tokens = self.new(count)
        if tokens:
            self.ring.feed(tokens)
            self.full.feed(tokens)
            self.text += tokens

    def try_(self, fed: int, kept: int) -> None:
        tokens = self.new(fed)
        kept = min(kept, len(tokens))
        for memory in (self.ring, self.full):
            with memory.cache.trial() as trial:
                if tokens:
                    memory.feed(tokens)
                trial.keep(kept)
        self.text += tokens[:kept]

    def fail(self, count: int) -> None:
        """A pass that is cut short when it has stored everything."""
        tokens = self.new(count)
        for memory in (self.ring, self.full):
            with suppress(KeyboardInterrupt), memory.cache.trial():
                memory.feed(tokens, fail=True)

    def branch(self, rows: set[int]) -> None:
        tokens = self.new(13)
        path = [0, *sorted(row for row in rows if row < len(tokens))]
        if not tokens:
            return
        for memory in (self.ring, self.full):
            with memory.cache.trial() as trial:
                memory.feed(tokens)
                trial.keep_path(path)
        self.text += [tokens[row] for row in path]

    def cut(self, back: int) -> None:
        """The ring may have to be fed again."""
        length = max(len(self.text) - back, 0)
        reached = self.ring.cache.reach(length)
        assert reached in (0, length)
        assert reached or not length or self._furthest > RING - WINDOW
        self.ring.cache.truncate(reached)
        self.full.cache.truncate(length)
        del self.text[length:]
        for start in range(reached, length, 50):
            self.ring.feed(self.text[start : start + 50])

    def move(self, _: None) -> None:
        """Into another cache, as a saved prompt is."""
        other = Memory.of(self.name, ring=True)
        saved = {key: piece.read() for key, piece in self.ring.cache.pieces().items()}
        for key, piece in self.ring.cache.pieces().items():
            assert saved[key].shape == piece.shape
        assert other.cache.form == self.ring.cache.form != self.full.cache.form
        other.cache.fill(saved, len(self.text))
        self.ring = other


@pytest.mark.parametrize("name", PRESENT)
@few
@given(deeds)
def test_a_ring_holds_what_the_next_token_sees(name: str, deeds: list[tuple[str, Any]]) -> None:
    pair = Pair(name)
    for deed, what in deeds:
        if deed == "try":
            pair.try_(*what)
        else:
            getattr(pair, deed)(what)
        assert pair.ring.seen() == pair.full.seen()
        assert pair.ring.cache.length == len(pair.text)


def test_what_a_ring_has_no_room_for_is_refused() -> None:
    ring = Memory.of("reference", ring=True)
    widest = RING - WINDOW + 1
    with pytest.raises(ValueError, match=f"a pass of {widest + 1} tokens; a window has room for"):
        ring.feed([1] * (widest + 1))

    def too_long() -> None:
        with ring.cache.trial():
            ring.feed([1] * widest)
            ring.feed([1] * 30)

    ring.feed([1] * widest)
    with pytest.raises(ValueError, match="a trial of more tokens than"):
        too_long()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda saved: saved.update({"0.first": np.array([200], np.int32)}),
        lambda saved: saved.update({"0.first": np.array([-1], np.int32)}),
        lambda saved: saved.update({"0.first": np.array([5.0])}),
        lambda saved: saved.update({"0.kv": saved["0.kv"][1:]}),
        lambda saved: saved.update({"0.kv": np.zeros(3, np.uint8)}),
        lambda saved: saved.pop("0.first"),
    ],
)
def test_pieces_of_something_else_are_refused(spoil: Any) -> None:
    ring, other = (Memory.of("reference", ring=True) for _ in range(2))
    for _ in range(3):
        ring.feed(list(range(1, 81)))
    saved = {key: piece.read() for key, piece in ring.cache.pieces().items()}
    spoil(saved)
    with pytest.raises((KeyError, ValueError)):
        other.cache.fill(saved, 240)
    assert other.cache.length == 0


@pytest.mark.parametrize("window", [1, 16, 512, 1024])
@pytest.mark.parametrize("rows", [1, 16, 512, 2048])
def test_a_ring_is_as_large_as_it_must_be(window: int, rows: int) -> None:
    slots = KVShape(1, 64, 64, window).ring(rows)
    assert slots % 128 == 0
    assert window + rows - 1 <= slots < window + rows + 127
    assert KVShape(1, 64, 64).ring(rows) == 0


POSITIONS, ROWS = 640, 60
"""Of the tiny model, whose window is 16: its rings have 128 slots."""


@cache
def subject(device: str, whole: bool) -> Model:
    return build(
        *tensors_of("gemma3"),
        one_thread(device),
        positions=POSITIONS,
        kv="f16",
        rows=ROWS,
        whole=whole,
    )


def text(length: int) -> list[int]:
    tokens = [int(token) for token in golden("gemma3")["long_tokens"]]
    return (tokens * 5)[:length]


@pytest.mark.parametrize("device", PRESENT)
@settings(deadline=None, max_examples=6)
@given(
    passes=st.lists(st.integers(1, ROWS), min_size=6, max_size=14),
    tree=st.lists(st.integers(0, 10**6), max_size=11),
    kept=st.integers(1, 5),
)
def test_a_model_has_the_same_bits_with_rings(
    device: str, passes: list[int], tree: list[int], kept: int
) -> None:
    """Passes of any size, then a tree, of which a path stays, then what follows it."""
    parents = (-1, *(draw % row for row, draw in enumerate(tree, 1)))
    opened, start = one_thread(device), 0
    models = [subject(device, whole) for whole in (False, True)]
    for model in models:
        model.cache.truncate(0)

    def same(tokens: list[int], parents: Sequence[int] | None = None) -> None:
        ring, full = (all_rows(opened, model, tokens, parents) for model in models)
        np.testing.assert_array_equal(ring, full)

    for count in passes:
        same(text(start + count)[start:])
        start += count
    path = [0]
    while len(path) < kept and path[-1] in parents:
        path.append(parents.index(path[-1]))
    trials = [model.cache.trial() for model in models]
    ring, full = (trial.__enter__() for trial in trials)
    same(text(len(parents)), parents)
    for trial in (ring, full):
        trial.keep_path(path)
    for manager in trials:
        manager.__exit__(None, None, None)
    same(text(7))


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("device", PRESENT)
def test_what_is_planned_is_what_is_taken(device: str, whole: bool) -> None:
    metadata, _ = tensors_of("gemma3")
    config = plugins.find("models", "gemma3").read(metadata, RopeOverrides())
    plan = CachePlan(POSITIONS, "f16", "f16", rows=ROWS, whole=whole)
    caches = layer_caches(config.kv_shapes, plan)
    assert sum(each.nbytes(POSITIONS) for each in caches) == subject(device, whole).cache.nbytes


FULL = [layer == 5 for layer in range(7)]


def test_a_file_is_loaded_with_rings_unless_the_context_shifts() -> None:
    options = LoadOptions(path_of("gemma3"), context=2048, device="cpu", warmup=False)
    rings = load(options)
    kinds = [type(layer) for layer in rings.model.cache.layers]
    assert kinds == [DenseLayer if full else WindowLayer for full in FULL]
    for whole in ({"context_shift": True}, {"swa_full": True}):
        loaded = load(LoadOptions(options.model, context=2048, device="cpu", **whole))  # type: ignore[arg-type]
        assert {type(layer) for layer in loaded.model.cache.layers} == {DenseLayer}
        assert loaded.info.memory.cache > 2 * rings.info.memory.cache
    short = load(LoadOptions(options.model, context=512, device="cpu", warmup=False))
    assert {type(layer) for layer in short.model.cache.layers} == {DenseLayer}


@pytest.mark.parametrize("name", PRESENT)
def test_what_a_failed_pass_may_have_overwritten_is_lost(name: str) -> None:
    pair = Pair(name)
    for _ in range(4):
        pair.feed(50)
    pair.fail(RING - WINDOW + 1)
    assert pair.ring.seen() == pair.full.seen()
    pair.cut(50)
    assert pair.ring.seen() == pair.full.seen()


@pytest.mark.parametrize("options", [{}, {"width": 3}, {"tree": 8}], ids=str)
def test_drafts_change_no_bit_where_target_and_draft_have_turned_around(
    options: dict[str, int],
) -> None:
    device = one_thread("cpu")
    target, smaller = (
        build(*tensors_of(name), device, positions=1024, kv="f16")
        for name in ("gemma3", "gemma3-q5_1")
    )
    assert {type(layer) for layer in smaller.cache.layers} == {DenseLayer, WindowLayer}
    bench, spec = Bench(device, target, prompt=text(700), chunk=300), SpecOptions(**options)  # type: ignore[arg-type]
    draft = DraftModel(smaller, target.shared, spec)
    steps: list[Step] = []
    for temp in (0.0, 0.8, 3.0):  # the hotter, the more guesses are wrong
        sample = SampleOptions(temp=temp, seed=1)
        plain = bench.told(NoDrafter(), SpecOptions(), sample)
        told = bench.told(draft, spec, sample)
        assert told.tokens == plain.tokens
        np.testing.assert_array_equal(told.last, plain.last)
        steps += told.steps
    assert 0 < sum(step.accepted for step in steps) < sum(step.drafted for step in steps)
