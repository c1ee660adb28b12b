"""What a file of gemma3 says: windows, rotations, scales, a cap; and what it leaves out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.engine.tiny_models import build, golden, tensors_of
from tests.kernels.devices import PRESENT
from turbodflash_engine.errors import BadModel
from turbodflash_engine.layers.rope import RopeOverrides
from turbodflash_engine.metadata import Metadata
from turbodflash_engine.models.gemma3 import Gemma3Config
from turbodflash_kernels.device import open_device

TINY = dict(tensors_of("gemma3")[0].root.items())
KEY = "attention.sliding_window_pattern"


def metadata(**changes: Any) -> Metadata:
    """The tiny model's, with other values; None = the key is not there. "__" stands for a dot."""
    changed = {f"gemma3.{name.replace('__', '.')}": value for name, value in changes.items()}
    values = {**TINY, **changed}
    return Metadata({key: value for key, value in values.items() if value is not None}, "tiny.gguf")


def config(overrides: RopeOverrides | None = None, **changes: Any) -> Gemma3Config:
    return Gemma3Config.read(metadata(**changes), overrides or RopeOverrides())


def windows(**changes: Any) -> list[int]:
    return [shape.window for shape in config(**changes).attention]


@pytest.mark.parametrize(
    ("pattern", "slides"),
    [
        (None, [1, 1, 1, 1, 1, 0, 1]),
        (2, [1, 0, 1, 0, 1, 0, 1]),
        (1, [0] * 7),
        (0, [1] * 7),
        (np.array([True, False] * 3 + [True]), [1, 0, 1, 0, 1, 0, 1]),
        (np.array([0, 0, 0, 0, 0, 0, 1], np.int32), [0, 0, 0, 0, 0, 0, 1]),
    ],
)
def test_which_layers_look_through_a_window(pattern: Any, slides: list[int]) -> None:
    found = windows(**{KEY.replace(".", "__"): pattern})
    assert found == [16 * slide for slide in slides]


@pytest.mark.parametrize("size", [None, 0])
def test_without_a_window_all_layers_see_all(size: int | None) -> None:
    assert windows(attention__sliding_window=size) == [0] * 7


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"attention__sliding_window": -3}, "sliding_window' is -3"),
        ({KEY.replace(".", "__"): np.array([True, False])}, "has 2 values, expected one for each"),
        ({KEY.replace(".", "__"): "often"}, "is 'often'"),
        ({"final_logit_softcapping": -1.0}, "final_logit_softcapping"),
        ({"final_logit_softcapping": float("nan")}, "final_logit_softcapping"),
        ({"rope__freq_base_swa": 0.0}, "rope.freq_base_swa"),
    ],
)
def test_what_cannot_be_is_named(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(BadModel, match=words):
        config(**changes)


def test_windows_rotate_by_a_base_of_their_own_and_are_not_stretched() -> None:
    plain, told = config(), config(rope__freq_base_swa=5e3)
    assert plain.window_rope.freq_base == 1e4
    assert told.window_rope.freq_base == 5e3
    assert plain.rope.freq_scale == 1 / 8
    assert plain.window_rope.freq_scale == 1
    asked = config(RopeOverrides(freq_base=7e5, freq_scale=0.25))
    assert (asked.rope.freq_base, asked.rope.freq_scale) == (7e5, 0.25)
    assert asked.window_rope == plain.window_rope


def test_the_largest_model_scales_by_another_size_than_its_heads() -> None:
    """Which of 62 layers, 5376 wide, has heads of 128 where 5376 / 32 would be 168."""
    large = config(
        block_count=62,
        embedding_length=5376,
        attention__head_count=32,
        attention__head_count_kv=16,
        attention__key_length=128,
        attention__value_length=128,
        rope__dimension_count=None,
        feed_forward_length=21504,
    )
    assert {shape.scale for shape in large.attention} == {168**-0.5}
    assert {shape.scale for shape in config().attention} == {None}


@pytest.mark.parametrize("device", PRESENT)
def test_a_cap_holds_logits_below_it(device: str) -> None:
    _, tensors = tensors_of("gemma3")
    tokens = [int(token) for token in golden("gemma3")["tokens"]]
    opened, cap = open_device(device, 1), 3.0
    free, capped = (
        build(metadata(final_logit_softcapping=each), tensors, opened) for each in (None, cap)
    )
    raw = free(tokens, logits=5).logits.astype(np.float64)
    expected = cap * np.tanh(raw / cap)
    found = capped(tokens, logits=5).logits
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert np.abs(found).max() < cap < np.abs(raw).max()
