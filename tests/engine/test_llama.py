"""What is particular to the llama architecture: its variants, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.engine.tiny_models import Made, build, golden, made, tensors_of
from turbodflash_engine.errors import BadModel
from turbodflash_engine.layers.rope import RopeOverrides
from turbodflash_engine.layers.tensors import Info
from turbodflash_engine.metadata import Metadata
from turbodflash_engine.models.llama import PLUGIN
from turbodflash_kernels.device import open_device

TOKENS = [int(token) for token in golden("llama")["tokens"]]


def logits(metadata: Metadata, tensors: dict[str, Info], **overrides: float) -> NDArray[np.float32]:
    model = build(metadata, tensors, open_device("reference"), overrides=RopeOverrides(**overrides))
    return model(TOKENS, logits=len(TOKENS)).logits


def values(info: Info) -> NDArray[np.float32]:
    return info.data.view(np.float32).reshape(info.shape[::-1])


def changed(**keys: object) -> Metadata:
    """The tiny model's metadata with other values; dots are written as double underscores."""
    metadata, _ = tensors_of("llama")
    return Metadata(dict(metadata.items()) | {k.replace("__", "."): v for k, v in keys.items()})


def test_fused_projections_are_the_separate_ones() -> None:
    metadata, tensors = tensors_of("llama")
    fused = dict(tensors)
    for layer in range(4):
        names = [f"blk.{layer}.attn_{part}.weight" for part in "qkv"]
        rows = np.concatenate([values(fused.pop(name)) for name in names])
        fused[f"blk.{layer}.attn_qkv.weight"] = made(f"blk.{layer}.attn_qkv.weight", rows)
    np.testing.assert_array_equal(logits(metadata, fused), logits(metadata, tensors))


def test_without_a_head_the_embedding_is_the_head() -> None:
    metadata, tensors = tensors_of("llama")
    table = tensors["token_embd.weight"]
    tied = {name: info for name, info in tensors.items() if name != "output.weight"}
    copied = {**tied, "output.weight": Made("output.weight", "F32", table.shape, table.data)}
    np.testing.assert_array_equal(logits(metadata, tied), logits(metadata, copied))


def test_biases_and_neighbouring_pairs() -> None:
    """A qwen2 model is a llama model with biases, once its query and key rows are reordered so
    that halves become neighbours: new row 2i + a = old row a * D / 2 + i."""
    metadata, tensors = tensors_of("qwen2")
    own = {key.replace("qwen2.", "llama."): value for key, value in metadata.items()}
    own["general.architecture"] = "llama"
    renamed = dict(tensors)
    head_dim = own["llama.attention.key_length"]
    for name in tensors:
        if ".attn_q." in name or ".attn_k." in name:
            rows = values(tensors[name])
            halves = rows.reshape(-1, 2, head_dim // 2, *rows.shape[1:])
            renamed[name] = made(name, halves.swapaxes(1, 2).reshape(rows.shape))
    recorded = golden("qwen2")
    model = build(Metadata(own), renamed, open_device("reference"))
    tokens = [int(token) for token in recorded["tokens"]]
    ours = model(tokens, logits=len(tokens)).logits
    assert np.abs(ours - recorded["logits"]).max() <= recorded["atol"]


@pytest.mark.parametrize(
    ("name", "rows"), [("attn_output", 96), ("ffn_gate", 160), ("ffn_up", 160), ("ffn_down", 96)]
)
def test_a_bias_of_any_linear_is_used(name: str, rows: int) -> None:
    metadata, tensors = tensors_of("llama")
    plain = logits(metadata, tensors)
    for size, alike in ((0.0, True), (0.1, False)):
        bias = made(f"blk.1.{name}.bias", np.full(rows, size, np.float32))
        assert np.array_equal(logits(metadata, {**tensors, bias.name: bias}), plain) is alike


def test_longrope_takes_the_set_of_the_context() -> None:
    _, tensors = tensors_of("llama")
    divisors = tensors.pop("rope_freqs.weight")
    short = Made("rope_factors_short.weight", "F32", divisors.shape, divisors.data)
    long = made("rope_factors_long.weight", values(divisors) * 2)
    tensors |= {short.name: short, long.name: long}
    recorded = golden("llama")["logits"]
    for original, alike in ((256, True), (255, False)):
        metadata = changed(
            llama__rope__scaling__type="longrope",
            llama__rope__scaling__original_context_length=original,
        )
        assert bool(np.abs(logits(metadata, tensors) - recorded).max() < 1e-4) is alike


def test_a_person_overrides_the_file() -> None:
    metadata, tensors = tensors_of("llama")
    scaled = logits(changed(llama__rope__scaling__factor=4.0), tensors)
    np.testing.assert_array_equal(logits(metadata, tensors, factor=4.0), scaled)
    np.testing.assert_array_equal(logits(metadata, tensors, freq_scale=0.25), scaled)
    other = logits(changed(llama__rope__freq_base=5e5), tensors)
    np.testing.assert_array_equal(logits(metadata, tensors, freq_base=5e5), other)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"llama__expert_count": 8}, "no metadata key 'llama.expert_used_count'"),
        ({"llama__expert_count": 4097}, "'llama.expert_count' is 4,097, expected 1 to 4,096"),
        (
            {"llama__expert_count": 8, "llama__expert_used_count": 9},
            "'llama.expert_used_count' is 9, expected 1 to 8",
        ),
        ({"llama__block_count": 0}, "'llama.block_count' is 0, expected 1 to 4,096"),
        ({"llama__block_count": 2**31}, "expected 1 to 4,096"),
        ({"llama__block_count": "two"}, "'llama.block_count' is 'two'"),
        ({"llama__attention__head_count_kv": 4}, "6 query heads over 4 key heads"),
        ({"llama__attention__head_count_kv": 0}, "6 query heads over 0 key heads"),
        ({"llama__attention__head_count": 0}, "'llama.attention.head_count' is 0"),
        ({"llama__attention__key_length": 15}, "'llama.attention.value_length' is 16, expected"),
        ({"llama__rope__dimension_count": 8}, "is 8, expected the size of a head, 16"),
        ({"llama__rope__scaling__type": "su"}, "rope scaling 'su' is not supported"),
        ({"llama__rope__freq_base": 0.5}, "rope.freq_base is 0.5"),
        ({"llama__rope__scaling__factor": -1.0}, "rope.scaling.factor is -1"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_computed_is_refused(keys: dict[str, object], message: str) -> None:
    with pytest.raises(BadModel, match=message):
        PLUGIN.read(changed(**keys), RopeOverrides())


def test_sizes_may_differ_by_layer() -> None:
    config = PLUGIN.read(
        changed(
            llama__attention__head_count_kv=np.array([2, 3, 6, 1], np.int32),
            llama__feed_forward_length=np.array([160, 96, 160, 32], np.int32),
        ),
        RopeOverrides(),
    )
    assert [shape.kv_heads for shape in config.attention] == [2, 3, 6, 1]
    assert [shape.hidden for shape in config.ffn] == [160, 96, 160, 32]
    assert [shape.kv_heads for shape in config.kv_shapes] == [2, 3, 6, 1]
    assert {(shape.key_dim, shape.value_dim) for shape in config.kv_shapes} == {(16, 16)}
    assert [shape.group for shape in config.kv_shapes] == [3, 2, 1, 6]
