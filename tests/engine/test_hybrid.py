"""Qwen3.5: what its metadata must say, what lies apart, where it computes, how it goes back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.engine.test_session import end_of, text_of
from tests.engine.tiny_models import all_rows, build, golden, made, path_of, tensors_of, tiny
from turbodflash_engine.cache import RecurrentLayers, state_bytes
from turbodflash_engine.errors import BadModel, BadUsage
from turbodflash_engine.layers.rope import RopeOverrides
from turbodflash_engine.loading import load
from turbodflash_engine.metadata import Metadata
from turbodflash_engine.models._base import CachePlan
from turbodflash_engine.models._hybrid import HybridConfig
from turbodflash_engine.models._placement import Placement
from turbodflash_engine.models.qwen35 import PLUGIN
from turbodflash_engine.options import LoadOptions, SampleOptions, SayOptions, SpecOptions
from turbodflash_engine.session import Session, open_session
from turbodflash_engine.sizing import model_caches
from turbodflash_kernels._reference import ReferenceDevice
from turbodflash_kernels.device import open_device

KEY = "qwen35."


def config_of(**changes: object) -> HybridConfig:
    """The tiny model's configuration, with some keys changed; None = the key is gone."""
    metadata, _ = tensors_of("qwen35")
    values = dict(metadata.items())
    for name, value in changes.items():
        key = KEY + name.replace("__", ".")
        values.pop(key, None)
        if value is not None:
            values[key] = np.asarray(value) if isinstance(value, list) else value
    config: HybridConfig = PLUGIN.read(Metadata(values, "some.gguf"), RopeOverrides())
    return config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ssm__state_size": None}, "has no metadata key 'qwen35.ssm.state_size'"),
        ({"ssm__inner_size": 60}, "'qwen35.ssm.inner_size' is 60, expected 4 heads of 16, 64"),
        ({"ssm__group_count": 3}, "4 value heads over 3 key heads"),
        ({"ssm__conv_kernel": 1}, "convolves 1 rows"),
        ({"rope__dimension_sections": None}, "no metadata key 'qwen35.rope.dimension_sections'"),
        ({"rope__dimension_sections": [3, 3, 2]}, "is \\[3, 3, 2\\], expected four numbers"),
        ({"rope__dimension_sections": [0, 0, 0, 0]}, "expected four numbers"),
        ({"rope__dimension_count": 15}, "'qwen35.rope.dimension_count' is 15, expected an even"),
        ({"rope__dimension_count": 34}, "'qwen35.rope.dimension_count' is 34, expected 1 to 32"),
        ({"full_attention_interval": 0}, "'qwen35.full_attention_interval' is 0"),
        ({"full_attention_interval": 1}, "8 of 8 layers attend; expected some, not all"),
        ({"full_attention_interval": 9}, "0 of 8 layers attend"),
        ({"attention__recurrent_layers": [True]}, "has 1 values, expected one for each of 8"),
        ({"nextn_predict_layers": 8}, "'qwen35.block_count' is 0"),
    ],
    ids=str,
)
def test_what_contradicts_itself_is_named(changes: dict[str, object], message: str) -> None:
    with pytest.raises(BadModel, match=message):
        config_of(**changes)


def test_the_file_may_say_which_layers_attend() -> None:
    config = config_of(attention__recurrent_layers=[True, False] * 4)
    assert config.kv_layers == (1, 3, 5, 7)
    assert config.recurrent == (0, 2, 4, 6)
    assert config_of(full_attention_interval=2).kv_layers == (1, 3, 5, 7)
    assert config_of(full_attention_interval=None).kv_layers == (3, 7)


def test_layers_that_do_not_attend_need_no_key_heads() -> None:
    heads = [0, 0, 0, 2, 0, 0, 0, 1]
    shapes = config_of(attention__head_count_kv=heads).kv_shapes
    assert [shape.kv_heads for shape in shapes] == [2, 1]


@pytest.mark.parametrize(
    ("sections", "turning"),
    [
        ([11, 11, 10, 0], 8),
        ([3, 3, 2, 0], 8),
        ([2, 2, 1, 3], 5),  # three places of text's own section, where it stands still
        ([1, 0, 0, 0], 8),
    ],
)
def test_pairs_of_a_section_that_text_has_no_place_in_stand_still(
    sections: list[int], turning: int
) -> None:
    rope = config_of(rope__dimension_sections=sections).turning
    assert np.count_nonzero(rope.inv_freq) == turning
    plain = config_of().turning
    np.testing.assert_array_equal(
        rope.inv_freq[rope.inv_freq > 0], plain.inv_freq[rope.inv_freq > 0]
    )


def test_states_are_planned_as_they_are_whatever_the_context() -> None:
    config = config_of()
    caches = model_caches(config, CachePlan(4096, "f32", "f32"))
    assert [cache.layer for cache in caches] == [3, 7, 0, 1, 2, 4, 5, 6]
    assert [cache.kind for cache in caches] == ["all positions"] * 2 + ["recurrent"] * 6
    states = caches[2:]
    assert {cache.nbytes(256) for cache in states} == {cache.nbytes(1 << 20) for cache in states}
    assert states[0].fixed == state_bytes(config.delta)


# --- blocks behind the trunk ----------------------------------------------------------------------


def with_a_head_ahead(**without: bool) -> tuple[Metadata, dict[str, Any]]:
    """The tiny model with one more block, which predicts the token after the next."""
    metadata, infos = tensors_of("qwen35")
    values = dict(metadata.items()) | {f"{KEY}block_count": 9, f"{KEY}nextn_predict_layers": 1}
    width = 64
    block = {
        name.replace("blk.7.", "blk.8."): info
        for name, info in infos.items()
        if name.startswith("blk.7.")
    }
    for name, info in block.items():
        block[name] = made(name, info.data.view("<f4").reshape(info.shape[::-1]).squeeze())
    ones = np.ones(width, np.float32)
    beside = [
        made("blk.8.nextn.eh_proj.weight", np.ones((width, 2 * width), np.float32)),
        made("blk.8.nextn.enorm.weight", ones),
        made("blk.8.nextn.hnorm.weight", ones),
        made("blk.8.nextn.shared_head_norm.weight", ones),
    ]
    tensors = infos | block | {info.name: info for info in beside}
    return Metadata(values, "some.gguf"), tensors


def test_heads_ahead_lie_apart_and_change_nothing() -> None:
    metadata, tensors = with_a_head_ahead()
    device = open_device("reference")
    with_head, without = build(metadata, tensors, device), tiny("qwen35", device)
    assert with_head.shared.layers == without.shared.layers == 8
    tokens = [int(token) for token in golden("qwen35")["tokens"]]
    np.testing.assert_array_equal(
        all_rows(device, with_head, tokens), all_rows(device, without, tokens)
    )


@pytest.mark.parametrize(
    ("name", "shape"),
    [("blk.8.nextn.eh_proj.weight", (64, 64)), ("blk.8.attn_q.weight", (64, 128))],
)
def test_heads_ahead_are_checked_as_the_rest_is(name: str, shape: tuple[int, ...]) -> None:
    metadata, tensors = with_a_head_ahead()
    tensors[name] = made(name, np.ones(shape[::-1], np.float32))
    with pytest.raises(BadModel, match=f"tensor '{name}' has the shape"):
        build(metadata, tensors, open_device("reference"))


# --- where it computes ----------------------------------------------------------------------------


@pytest.mark.parametrize("split", [1, 3, 4, 7])
def test_layers_on_two_devices_are_one_model(split: int) -> None:
    one, other = ReferenceDevice(), ReferenceDevice()
    whole = tiny("qwen35", one)
    parted = tiny("qwen35", Placement((one,) * split + (other,) * (8 - split), other))
    kinds = [layer for layer in parted.cache.layers if isinstance(layer, RecurrentLayers)]
    assert sum(len(kind.states) for kind in kinds) == 6
    tokens = [int(token) for token in golden("qwen35")["tokens"]]
    for model in (whole, parted):
        model(tokens[:30])
        with model.cache.trial() as trial:
            model(tokens[10:20])
            trial.keep(3)
    np.testing.assert_array_equal(
        parted(tokens[30:], logits=18).logits, whole(tokens[30:], logits=18).logits
    )


# --- as a program has it --------------------------------------------------------------------------

SAY = SayOptions(max_tokens=8, sample=SampleOptions(temp=0))


def session(**changes: Any) -> Session:
    return open_session(LoadOptions(path_of("qwen35"), device="reference", context=512, **changes))


def heard(talk: Session, prompt: str) -> tuple[str, int]:
    """The answer, and how many tokens of the prompt were not computed."""
    events = list(talk.complete(prompt, SAY))
    return text_of(events), end_of(events).cached_tokens


def test_a_prompt_that_begins_as_one_before_is_not_computed_again() -> None:
    talk = session()
    first = "the quick brown fox jumps over the lazy dog, and then some more of it " * 2
    answer, cached = heard(talk, first)
    assert cached == 0
    again, cached = heard(talk, first)
    assert again == answer
    assert cached > 0
    longer, cached = heard(talk, first + "!")
    assert cached > 0
    assert heard(session(), first + "!")[0] == longer


def test_a_context_with_recurrent_layers_does_not_shift() -> None:
    with pytest.raises(BadUsage, match="the model has 6 recurrent layers, which cannot forget"):
        session(context_shift=True)


def test_nor_does_that_of_a_draft() -> None:
    spec = SpecOptions(model=path_of("qwen35"))
    options = LoadOptions(path_of("qwen3"), device="reference", context_shift=True, spec=spec)
    with pytest.raises(BadUsage, match="the draft has 6 recurrent layers"):
        load(options)
