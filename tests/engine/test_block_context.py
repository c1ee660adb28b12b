"""What a block draft knows of a text depends on the text alone, however it was read."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.block_drafts import BONUS, PAIRS, SLIDING, SPARK, TEXT, V1, Logits, built, variant
from tests.engine.spec_runs import read_prompt, take_step
from tests.engine.tiny_models import build, tensors_of
from turbodflash_engine.cache import KVShape
from turbodflash_engine.drafters._block import context as context_module
from turbodflash_engine.drafters._block.context import Context
from turbodflash_engine.drafters._block.drafter import BlockDrafter
from turbodflash_engine.models._base import LASTING, CachePlan, Model
from turbodflash_engine.options import SpecOptions
from turbodflash_kernels.device import Device, open_device

WINDOW = 12  # of SLIDING
ALL_SLIDE = {"dflash.attention.sliding_window_pattern": np.array([True, True])}


def logits_after(
    drafter: BlockDrafter, target: Model, device: Device, text: Sequence[int], chunk: int = 512
) -> Any:
    """Read a text from its beginning, then what the next draft is chosen from."""
    target.cache.truncate(0)
    drafter.truncate(0)
    read_prompt(target, drafter, text, chunk)
    return Logits(drafter, device)(text)


# --- on models ------------------------------------------------------------------------------------


@pytest.mark.parametrize("pair", [V1, SLIDING, BONUS])
@pytest.mark.parametrize("inject", ["immediate", "deferred", "auto"])
@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_drafts_do_not_depend_on_how_the_text_was_read(
    pair: str, inject: str, chunk: int, target: Model, device: Device
) -> None:
    expected = logits_after(built(pair, target, device), target, device, TEXT)
    drafter = built(pair, target, device, inject=inject)
    np.testing.assert_array_equal(logits_after(drafter, target, device, TEXT, chunk), expected)


@pytest.mark.parametrize("pattern", [None, ALL_SLIDE])
def test_rows_that_nothing_sees_are_not_missed(
    pattern: dict[str, object] | None, target: Model, device: Device
) -> None:
    """Without knowing what is to come, every row must be stored."""
    skipping, storing = (
        built(variant(SLIDING, pattern), target, device, inject="immediate") for _ in range(2)
    )
    expected = logits_after(storing, target, device, TEXT, chunk=1)
    np.testing.assert_array_equal(logits_after(skipping, target, device, TEXT, 50), expected)
    k = [kv.read(0, 20)[0] for kv in skipping._context.memory]
    full = pattern is None
    assert not k[0].any()
    assert k[1].any() == full


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("width", [1, 5, 16])
def test_rejected_drafts_leave_no_trace(
    pair: str, width: int, target: Model, device: Device
) -> None:
    drafter = built(pair, target, device)
    logits = Logits(drafter, device)
    text = TEXT[:40]
    read_prompt(target, drafter, text)
    for _ in range(5):
        take_step(target, drafter, text, width)
    found = logits(text)
    expected = logits_after(built(pair, target, device), target, device, text)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("length", [0, 1, 70, 128, 138])
def test_a_text_cut_back_and_continued_is_as_if_read_at_once(
    length: int, target: Model, device: Device
) -> None:
    drafter = built(V1, target, device)
    read_prompt(target, drafter, TEXT)
    text = TEXT[:length] + TEXT[30:60]
    target.cache.truncate(length)
    drafter.truncate(length)
    rest = text[length:-1]
    output = target(rest, logits=0, taps=drafter.taps)
    drafter.observe(rest, range(length, length + len(rest)), output.taps)
    logits = Logits(drafter, device)(text)
    fresh = built(V1, target, device)
    np.testing.assert_array_equal(logits, logits_after(fresh, target, device, text))


def read(drafter: BlockDrafter, target: Model, tokens: Sequence[int], sizes: Sequence[int]) -> None:
    """Read these tokens next, in passes of these sizes by turns."""
    at = 0
    for size in cycle(sizes):
        part = tokens[at : at + size]
        if not part:
            return
        start = target.cache.length
        output = target(part, logits=0, taps=drafter.taps)
        drafter.observe(part, range(start, start + len(part)), output.taps)
        at += size


SIZES = [[1], [*[1] * 70, 5, 3], [5, *[1] * 90, 20], [*[1] * 9, 2]]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("pair", [V1, SLIDING, SPARK])
def test_rows_alone_wait_as_well_as_others(
    pair: str, sizes: list[int], target: Model, device: Device
) -> None:
    """Those stay where the model has put them, in the middle of others that are copied."""
    drafter = built(pair, target, device)
    target.cache.truncate(0)
    read(drafter, target, TEXT[:-1], sizes)
    found = Logits(drafter, device)(TEXT)
    fresh = built(pair, target, device)
    np.testing.assert_array_equal(found, logits_after(fresh, target, device, TEXT))


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("length", [0, 1, 70, 100])
def test_rows_that_wait_are_cut_back_with_the_text(
    length: int, sizes: list[int], target: Model, device: Device
) -> None:
    drafter = built(V1, target, device)
    target.cache.truncate(0)
    read(drafter, target, TEXT[:110], sizes)
    text = TEXT[:length] + TEXT[30:90]
    target.cache.truncate(length)
    drafter.truncate(length)
    read(drafter, target, text[length:-1], sizes[::-1])
    found = Logits(drafter, device)(text)
    fresh = built(V1, target, device)
    np.testing.assert_array_equal(found, logits_after(fresh, target, device, text))


def test_rows_do_not_wait_until_they_are_overwritten(device: Device) -> None:
    """They last for so many positions; the draft's context ends long before."""
    target = build(*tensors_of("qwen3"), device, positions=LASTING + 64)
    drafter = built(V1, target, device, CachePlan(60, "f32", "f32"))
    text = [*islice(cycle(TEXT), LASTING + 60)]
    read(drafter, target, text, [1])
    for cached in (target.cache, drafter):
        cached.truncate(50)
    found = Logits(drafter, device)(text[:51])
    fresh = built(V1, target, device)
    np.testing.assert_array_equal(found, logits_after(fresh, target, device, text[:51]))


def test_nothing_is_drafted_while_a_window_has_a_hole(target: Model, device: Device) -> None:
    drafter = built(SLIDING, target, device)
    read_prompt(target, drafter, TEXT)
    cut = 60  # far before what the window needs at the end: rows there were never stored
    target.cache.truncate(cut)
    drafter.truncate(cut)
    text = TEXT[: cut + 1]
    for step in range(WINDOW - 1):
        assert drafter.draft(text, 4).tokens == (), step
        take_step(target, drafter, text, 4)
    logits = Logits(drafter, device)(text)
    fresh = built(SLIDING, target, device)
    np.testing.assert_array_equal(logits, logits_after(fresh, target, device, text))


@pytest.mark.parametrize(("start", "stop"), [(4, 50), (0, 1), (90, 120)])
@pytest.mark.parametrize("pair", [V1, SLIDING, SPARK])
def test_what_is_forgotten_is_as_if_it_had_not_come(
    pair: str, start: int, stop: int, target: Model, device: Device
) -> None:
    forgetful, fresh = built(pair, target, device), built(pair, target, device)
    read = TEXT[:-1]
    target.cache.truncate(0)
    output = target(read, logits=0, taps=forgetful.taps)
    taps = [device.upload(device.read(tap).copy()) for tap in output.taps]
    forgetful.observe(read, range(len(read)), taps)
    forgetful.forget(start, stop)
    fresh.observe(read[:start], range(start), [tap[:start] for tap in taps])
    behind = range(start, len(read) - (stop - start))
    fresh.observe(read[stop:], behind, [tap[stop:] for tap in taps])
    text = TEXT[:start] + TEXT[stop:]
    found, expected = (Logits(each, device)(text) for each in (forgetful, fresh))
    np.testing.assert_allclose(found, expected, atol=1e-3)


def test_a_shorter_context_does_not_shift(target: Model, device: Device) -> None:
    drafter = built(V1, target, device, CachePlan(60, "f32", "f32"))
    read_prompt(target, drafter, TEXT[:80])
    with pytest.raises(ValueError, match="79 positions do not shift in a room of 60"):
        drafter.forget(4, 30)


def test_a_shorter_context_stops_drafts_and_nothing_else(target: Model, device: Device) -> None:
    drafter = built(V1, target, device, CachePlan(60, "f32", "f32"))
    logits = Logits(drafter, device)
    text = TEXT[:58]
    read_prompt(target, drafter, text)
    guessed = []
    while len(text) < 90:
        at = len(text) - 1
        guessed.append((at, bool(drafter.draft(text, 7).tokens)))
        take_step(target, drafter, text, 7)
    assert all(guess == (at <= 60) for at, guess in guessed)
    for cut, drafts in ((75, False), (61, False), (60, True), (42, True)):
        target.cache.truncate(cut)
        drafter.truncate(cut)
        assert bool(drafter.draft(text[: cut + 1], 7).tokens) == drafts
    found = logits(text[:43])
    fresh = built(V1, target, device)
    np.testing.assert_array_equal(found, logits_after(fresh, target, device, text[:43]))


def test_observing_out_of_order_is_refused(target: Model, device: Device) -> None:
    drafter = built(V1, target, device)
    output = target(TEXT[:5], taps=drafter.taps)
    with pytest.raises(ValueError, match="position 1 observed after 0 others"):
        drafter.observe(TEXT[:5], range(1, 6), output.taps)


# --- its books, without numbers -------------------------------------------------------------------


class Memory:
    """Stands for the injection: which row of the text each layer has at each position."""

    def __init__(self, windows: tuple[int, ...]) -> None:
        self.all_slide = all(windows)
        self.rows: list[object] = []
        self.full: dict[int, object] = {}
        self.sliding: dict[int, object] = {}
        self.nbytes = 0

    def hold(self, at: int, taps: Sequence[Sequence[object]], count: int) -> None:
        assert at <= len(self.rows)
        self.rows[at:] = taps[0][:count]

    def run(self, start: int, stop: int, position: int, *, sliding: bool) -> None:
        assert start < stop
        stored = dict(enumerate(self.rows[start:stop], position))
        self.full |= {} if self.all_slide else stored
        self.sliding |= stored if sliding else {}


class Config:
    """As much of a configuration as the books need."""

    def __init__(self, *windows: int) -> None:
        self.windows = windows
        self.kv_shapes = [KVShape(2, 2, 2) for _ in windows]


PROMPT = st.tuples(st.just("read"), st.integers(1, 150), st.integers(1, 80))
STEP = st.tuples(st.just("read"), st.integers(1, 9), st.just(16))
CUT = st.tuples(st.just("cut"), st.integers(0, 30), st.just(0))
DEEP_CUT = st.tuples(st.just("cut"), st.integers(0, 400), st.just(0))


@given(
    windows=st.sampled_from([(0, 0), (5, 0), (0, 20), (20, 20)]),
    inject=st.sampled_from(["deferred", "immediate"]),
    capacity=st.integers(1, 300),
    acts=st.lists(PROMPT | STEP | CUT | DEEP_CUT, max_size=12),
    stored=st.booleans(),
)
def test_all_that_a_block_looks_at_is_there(
    windows: tuple[int, ...],
    inject: str,
    capacity: int,
    acts: list[tuple[str, int, int]],
    stored: bool,
) -> None:
    memory, window = Memory(windows), max(windows)
    with patch.object(context_module, "Injection", lambda *parts: memory):
        context: Any = Context(
            open_device("reference"),
            *(None, Config(*windows), None),  # type: ignore[arg-type]
            CachePlan(capacity),
            SpecOptions(inject=inject),
            block=4,
        )
    text: list[object] = []
    longest, shallow = 0, True  # cuts together went no further back than a window
    for kind, count, chunk in acts:
        if kind == "cut":
            del text[max(len(text) - count, 0) :]
            shallow = shallow and longest - len(text) <= window
            context.truncate(len(text))
            continue
        for start in range(0, count, chunk):
            rows = [object() for _ in range(min(chunk, count - start))]
            at = len(text)
            text += rows
            context.observe(range(at, len(text)), [rows], count - start - len(rows))
        longest = max(longest, len(text))
        if stored:
            check(context, memory, text, windows)
    check(context, memory, text, windows)
    assert context.length == len(text)
    if shallow or not window:
        assert context.complete == (len(text) <= capacity)


def check(context: Any, memory: Memory, text: list[object], windows: tuple[int, ...]) -> None:
    """If a block may be drafted now, its layers find what they look at."""
    if not context.complete:
        return
    context.store()
    seen = range(max(len(text) + 1 - max(windows), 0), len(text))
    assert all(memory.sliding[at] is text[at] for at in seen) or not any(windows)
    assert memory.all_slide or all(memory.full[at] is row for at, row in enumerate(text))
