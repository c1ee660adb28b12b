"""Logits are made when they are asked for, only as far, and of the rows that the pass gave."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.test_lossless import returned
from tests.engine.tiny_models import tiny
from tests.engine.toy import all_of
from tests.kernels.devices import PRESENT, poisoned
from turbodflash_engine.decode import prefill
from turbodflash_engine.decode.target import Output
from turbodflash_engine.drafters._base import NoDrafter, Rows
from turbodflash_engine.layers.head import Head
from turbodflash_engine.layers.scores import Scores
from turbodflash_engine.sampling.candidates import Candidates
from turbodflash_kernels._reference import ReferenceDevice
from turbodflash_kernels.cases import normal, random_part
from turbodflash_kernels.device import Device, open_device
from turbodflash_kernels.op import RmsNorm

COLS, TOKENS, MOST_ROWS = 64, 300, 5
MODELS = ("llama", "gemma4")  # the second caps its logits


class Spying(ReferenceDevice):
    """played: the names of ops, as they are called."""

    def __init__(self) -> None:
        super().__init__()
        self.played: list[str] = []

    def bind(self, op: str, /, **static: Any) -> Callable[..., Any]:
        bound = super().bind(op, **static)

        def call(*arrays: Any) -> Any:
            self.played.append(op)
            return bound(*arrays)

        return call


def head_on(device: Device, softcap: float = 0.0) -> Head:
    norm = RmsNorm(device.upload(1 + normal(1, COLS, 5)[0]), 1e-5)
    return Head(
        device, device.pack([random_part("8-zero128", TOKENS, COLS, 1)], COLS), norm, softcap
    )


HEADS = {(name, cap): head_on(poisoned(name), cap) for name in PRESENT for cap in (0.0, 0.5)}
ASKED = st.one_of(st.none(), st.tuples(st.integers(1, TOKENS), st.floats(0, 1)))
"""All of them; or of how many of the first, and which share of these."""


@pytest.mark.parametrize(("name", "cap"), HEADS)
@given(
    first=st.integers(0, MOST_ROWS - 1),
    passes=st.lists(st.lists(ASKED, min_size=1, max_size=4), min_size=1, max_size=3),
)
@settings(max_examples=25, deadline=None)
def test_however_they_are_asked_for_they_are_those_of_the_pass_at_hand(name, cap, first, passes):
    head = HEADS[name, cap]
    rows = head.device.upload(normal(MOST_ROWS, COLS, 1))
    scores = Scores(head, rows, first)
    for turn, asked in enumerate(passes):
        head.device.write(rows, normal(MOST_ROWS, COLS, turn))
        scores.anew()
        whole = head.device.read(head.logits(rows))[first:].copy()
        for each in asked:
            if each is None:
                np.testing.assert_array_equal(scores.all(), whole)
                continue
            width, share = each
            count = max(1, round(share * width))
            values, ids = scores.largest(count, width)
            expected = np.argsort(-whole[:, :width], axis=1, kind="stable")[:, :count]
            np.testing.assert_array_equal(ids, expected)
            np.testing.assert_array_equal(values, np.take_along_axis(whole, expected, axis=1))


def test_a_pass_without_logits_plays_no_head() -> None:
    device = Spying()
    model = tiny("gemma4", device)
    device.played.clear()
    output = model([1, 2, 3], logits=0)
    assert output.logits.shape == (0, model.vocabulary)
    assert not {"softcap", "top_logits", "largest"} & set(device.played)


def test_a_head_is_played_once_for_what_is_asked() -> None:
    device = Spying()
    scores = Scores(head_on(device, 0.5), device.upload(normal(2, COLS, 1)), 0)
    device.played.clear()
    scores.largest(3, 100)
    assert device.played == ["top_logits", "linear", "softcap", "largest"]  # as it is made of
    device.played.clear()
    scores.all(), scores.all(), scores.largest(3, 100)
    assert device.played == ["linear", "softcap", "largest"]


# --- how long rows hold ---------------------------------------------------------------------------


class Writer(NoDrafter):
    """Whenever it sees a token it writes wherever an op of a captured step may."""

    def __init__(self, device: Device, widths: Sequence[int]) -> None:
        cap = device.bind("softcap", cap=1e9)
        arrays = [device.upload(np.full((1, width), 1e6, np.float32)) for width in widths]

        def step() -> None:
            held = [cap(array) for array in arrays for _ in range(8)]
            del held  # from here on whatever is captured has this memory

        self._run = device.capture(step)

    def observe(
        self, tokens: Sequence[int], positions: range, taps: Sequence[Rows], coming: int = 0
    ) -> None:
        self._run()


@pytest.mark.parametrize("look", [all_of, lambda output: best_of(output)], ids=["all", "best"])
@pytest.mark.parametrize("target", MODELS)
def test_what_is_seen_of_a_prompt_is_left_alone_by_drafters(
    target: str, look: Callable[[Output], list[Candidates]]
) -> None:
    prompt = [7, 30, 31, 32, 40]
    (expected,) = look(tiny(target, open_device("cpu", 1))(prompt))
    device = open_device("cpu", 1)
    writer = Writer(device, [2**size for size in range(14)])
    (seen,) = returned(prefill(tiny(target, device), writer, prompt, 5, look))
    np.testing.assert_array_equal(seen.ids, expected.ids)
    np.testing.assert_array_equal(seen.logits, expected.logits)


def best_of(output: Output) -> list[Candidates]:
    return [output.largest(7, 100).of(0)]


@pytest.mark.parametrize("target", MODELS)
def test_making_logits_leaves_taps_alone(target: str) -> None:
    device = open_device("cpu", 1)
    model = tiny(target, device)

    def taps_of(look: Callable[[Output], object]) -> list[bytes]:
        model.cache.truncate(0)
        output = model([3, 4, 5], logits=3, taps=(0, 1, model.shared.layers))
        look(output)
        return [device.read(tap).tobytes() for tap in output.taps]

    expected = taps_of(lambda output: None)
    for look in (best_of, all_of, lambda output: (best_of(output), all_of(output))):
        for _ in range(3):
            assert taps_of(look) == expected
