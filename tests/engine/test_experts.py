"""Mixtures of experts as files bring them: fused or apart, with scales, with sizes left unsaid."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.engine.tiny_models import build, golden, made, tensors_of
from tests.kernels.devices import PRESENT
from turbodflash_engine.errors import BadModel
from turbodflash_engine.layers.rope import RopeOverrides
from turbodflash_engine.layers.tensors import Info
from turbodflash_engine.metadata import Metadata
from turbodflash_engine.models.qwen3moe import PLUGIN
from turbodflash_kernels.device import open_device

TOKENS = [int(token) for token in golden("qwen3moe")["tokens"]]
EXPERTS, LAYERS = 8, 4

Values = NDArray[np.float32]
on_every_device = pytest.mark.parametrize("device", PRESENT)


def logits(metadata: Metadata, tensors: dict[str, Info], device: str = "reference") -> Values:
    return build(metadata, tensors, open_device(device))(TOKENS, logits=len(TOKENS)).logits.copy()


def values(info: Info) -> Values:
    return info.data.view(np.float32).reshape(info.shape[::-1])


def with_(tensors: dict[str, Info], name: str, new: Values) -> dict[str, Info]:
    """The tensors, and one of several dimensions among them."""
    tensor = made(name, new.reshape(-1, new.shape[-1]) if new.ndim > 1 else new)
    tensor.shape = new.shape[::-1]
    return {**tensors, name: tensor}


def changed(metadata: Metadata, **keys: object) -> Metadata:
    return Metadata(dict(metadata.items()) | {f"qwen3moe.{key}": keys[key] for key in keys})


@on_every_device
def test_gates_and_ups_in_one_tensor_are_those_apart(device: str) -> None:
    metadata, tensors = tensors_of("qwen3moe")
    fused = dict(tensors)
    for layer in range(LAYERS):
        gate, up = (
            values(fused.pop(f"blk.{layer}.ffn_{part}_exps.weight")) for part in ("gate", "up")
        )
        name = f"blk.{layer}.ffn_gate_up_exps.weight"
        fused = with_(fused, name, np.concatenate([gate, up], axis=1))
    np.testing.assert_array_equal(
        logits(metadata, fused, device), logits(metadata, tensors, device)
    )


@on_every_device
@pytest.mark.parametrize("part", ["ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"])
def test_a_scale_for_each_expert_multiplies_its_results(part: str, device: str) -> None:
    metadata, tensors = tensors_of("qwen3moe")
    scale = np.linspace(0.5, 2, EXPERTS, dtype=np.float32)
    name = f"blk.1.{part}"
    scaled = values(tensors[f"{name}.weight"]) * scale[:, None, None]
    expected = logits(metadata, with_(tensors, f"{name}.weight", scaled), device)
    found = logits(metadata, with_(tensors, f"{name}.scale", scale), device)
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert np.abs(found - logits(metadata, tensors, device)).max() > 1e-2


@on_every_device
@pytest.mark.parametrize(
    "name", ["blk.0.attn_k", "blk.1.ffn_gate_inp", "blk.2.attn_output", "output", "token_embd"]
)
def test_a_scale_beside_a_matrix_multiplies_its_results(name: str, device: str) -> None:
    metadata, tensors = tensors_of("qwen3moe")
    scaled = values(tensors[f"{name}.weight"]) * np.float32(1.75)
    expected = logits(metadata, with_(tensors, f"{name}.weight", scaled), device)
    beside = with_(tensors, f"{name}.scale", np.full(1, 1.75, np.float32))
    np.testing.assert_allclose(logits(metadata, beside, device), expected, atol=1e-4)


def test_scales_of_activations_are_left_alone() -> None:
    metadata, tensors = tensors_of("qwen3moe")
    more = with_(tensors, "blk.0.attn_q.input_scale", np.full(1, 3, np.float32))
    more = with_(more, "blk.0.ffn_up_exps.input_scale", np.full(EXPERTS, 3, np.float32))
    np.testing.assert_array_equal(logits(metadata, more), logits(metadata, tensors))


def test_without_a_length_of_their_own_experts_share_that_of_the_layer() -> None:
    metadata, tensors = tensors_of("qwen3moe")
    keys = dict(metadata.items())
    hidden = keys.pop("qwen3moe.expert_feed_forward_length")
    keys["qwen3moe.feed_forward_length"] = 2 * hidden
    np.testing.assert_array_equal(logits(Metadata(keys), tensors), logits(metadata, tensors))


@on_every_device
def test_a_llama_of_equal_experts_is_a_dense_one(device: str) -> None:
    """Whatever the router says; each expert has the whole feed-forward length."""
    metadata, dense = tensors_of("llama")
    keys = {"llama.expert_count": 4, "llama.expert_used_count": 2}
    mixed = dict(dense)
    random = np.random.default_rng(1)
    for layer in range(LAYERS):
        prefix = f"blk.{layer}.ffn_"
        for part in ("gate", "up", "down"):
            matrix = values(mixed.pop(f"{prefix}{part}.weight"))
            mixed = with_(mixed, f"{prefix}{part}_exps.weight", np.stack([matrix] * 4))
        router = random.standard_normal((4, matrix.shape[0])).astype(np.float32)
        mixed = with_(mixed, f"{prefix}gate_inp.weight", router)
    found = logits(Metadata(dict(metadata.items()) | keys), mixed, device)
    np.testing.assert_allclose(found, logits(metadata, dense, device), atol=2e-4)


def test_the_scale_of_an_only_expert_is_taken_once() -> None:
    metadata, tensors = tensors_of("qwen3moe")
    metadata = changed(metadata, expert_count=1, expert_used_count=1)
    for name in [name for name in tensors if "_exps" in name]:
        tensors = with_(tensors, name, values(tensors[name])[:1])
    for name in [name for name in tensors if "gate_inp" in name]:
        tensors = with_(tensors, name, values(tensors[name])[:1])
    name = "blk.1.ffn_down_exps"
    scaled = with_(tensors, f"{name}.weight", values(tensors[f"{name}.weight"]) * np.float32(2))
    beside = with_(tensors, f"{name}.scale", np.full(1, 2, np.float32))
    np.testing.assert_allclose(logits(metadata, beside), logits(metadata, scaled), atol=1e-5)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"expert_count": 0}, "'qwen3moe.expert_count' is 0, expected 1 to 4,096"),
        ({"expert_used_count": 9}, "'qwen3moe.expert_used_count' is 9, expected 1 to 8"),
        ({"expert_used_count": 0}, "'qwen3moe.expert_used_count' is 0, expected 1 to 8"),
        ({"expert_feed_forward_length": -1}, "'qwen3moe.expert_feed_forward_length' is -1"),
        ({"expert_used_count": np.array([1, 2], np.int32)}, "has 2 values, expected one for each"),
    ],
    ids=str,
)
def test_counts_that_cannot_be_are_refused(keys: dict[str, object], message: str) -> None:
    metadata, _ = tensors_of("qwen3moe")
    with pytest.raises(BadModel, match=message):
        PLUGIN.read(changed(metadata, **keys), RopeOverrides())


def test_how_many_experts_are_used_may_differ_by_layer() -> None:
    metadata, _ = tensors_of("qwen3moe")
    used = np.array([1, 2, 3, 8], np.int32)
    config = PLUGIN.read(changed(metadata, expert_used_count=used), RopeOverrides())
    assert [shape.used for shape in config.ffn] == [1, 2, 3, 8]


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("blk.0.ffn_gate_up_exps.weight", (8, 96, 64), "more than this .* 'blk.0.ffn_gate_exps"),
        ("blk.0.ffn_down_exps.scale", (3,), r"'blk.0.ffn_down_exps.scale' has the shape \[3\]"),
        ("blk.0.attn_k.scale", (8,), r"'blk.0.attn_k.scale' has the shape \[8\], expected \[1\]"),
        ("blk.0.attn_norm.scale", (1,), "rescales 'blk.0.attn_norm.scale'"),
        ("blk.0.ffn_gate_exps.weight", (4, 48, 64), r"has the shape \[64, 48, 4\], expected"),
    ],
)
def test_tensors_that_contradict_are_named(name: str, shape: tuple[int, ...], message: str) -> None:
    metadata, tensors = tensors_of("qwen3moe")
    with pytest.raises(BadModel, match=message):
        logits(metadata, with_(tensors, name, np.zeros(shape, np.float32)))
