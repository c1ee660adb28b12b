"""The forms of gemma4 that no recording has, beside plain formulas in float64; and bad files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.engine.tiny_models import Made, build, golden, made, tensors_of
from tests.kernels.devices import PRESENT
from turbodflash_engine.errors import BadModel, BadUsage
from turbodflash_engine.layers.tensors import Info
from turbodflash_engine.metadata import Metadata
from turbodflash_engine.models._placement import Placement
from turbodflash_kernels.device import open_device

Floats = NDArray[Any]
PART, LAYERS, WIDTH, VOCABULARY = 16, 6, 64, 512
SHARED = 2
"""The last layers look at what layers 3 (through a window) and 2 (at all) remember."""
SOURCES = (0, 1, 2, 3, 3, 2)
SLIDES = (True, True, False, True, True, False)
TOKENS = [int(token) for token in golden("gemma4")["tokens"]]


def small(
    keys: Mapping[str, object] | None = None, without: tuple[str, ...] = ()
) -> tuple[Metadata, dict[str, Info]]:
    """The tiny model with parts of tokens in every layer, whose last layers share keys."""
    metadata, infos = tensors_of("gemma4")
    random = np.random.default_rng(4)

    def normal(name: str, *shape: int, scale: float = 0.3, mean: float = 0.0) -> Made:
        return made(name, (mean + scale * random.standard_normal(shape)).astype(np.float32))

    added = [
        normal("per_layer_token_embd.weight", VOCABULARY, PART * LAYERS),
        normal("per_layer_model_proj.weight", PART * LAYERS, WIDTH),
        normal("per_layer_proj_norm.weight", PART, mean=1.0),
    ]
    for layer in range(LAYERS):
        added += [
            normal(f"blk.{layer}.inp_gate.weight", PART, WIDTH),
            normal(f"blk.{layer}.proj.weight", WIDTH, PART),
            normal(f"blk.{layer}.post_norm.weight", WIDTH, mean=1.0),
        ]
    held = infos | {info.name: info for info in added}
    dropped = [
        f"blk.{layer}.attn_{name}.weight"
        for layer in range(LAYERS - SHARED, LAYERS)
        for name in ("k", "v", "k_norm")
    ]
    for name in (*dropped, *without):
        held.pop(name, None)
    changed = {
        "gemma4.embedding_length_per_layer_input": PART,
        "gemma4.attention.shared_kv_layers": SHARED,
    }
    return Metadata(dict(metadata.items()) | changed | dict(keys or {}), "tiny.gguf"), held


class Oracle:
    """A forward pass over a whole text, from the formulas of the format."""

    def __init__(self, infos: Mapping[str, Info]) -> None:
        self.values = {
            name: info.data.view("<f4").reshape(info.shape[::-1]).astype(np.float64)
            for name, info in infos.items()
        }

    def __call__(self, tokens: list[int]) -> Floats:
        w = self.values
        x = w["token_embd.weight"][tokens] * np.sqrt(WIDTH)
        looked_up = w["per_layer_token_embd.weight"][tokens] * np.sqrt(PART)
        made_of_x = x @ w["per_layer_model_proj.weight"].T / np.sqrt(WIDTH)
        shape = (len(tokens), LAYERS, PART)
        made_of_x = rms(made_of_x.reshape(shape), w["per_layer_proj_norm.weight"])
        parts = (made_of_x + looked_up.reshape(shape)) / np.sqrt(2)
        self.remembered: dict[int, tuple[Floats, Floats]] = {}
        for layer in range(LAYERS):
            x = self._block(layer, x, parts[:, layer])
        logits = rms(x, w["output_norm.weight"]) @ w["token_embd.weight"].T
        return np.asarray(30 * np.tanh(logits / 30))

    def _block(self, layer: int, x: Floats, part: Floats) -> Floats:
        def w(name: str) -> Floats:
            return self.values[f"blk.{layer}.{name}.weight"]

        mixed = self._attention(layer, rms(x, w("attn_norm"))) @ w("attn_output").T
        r = x + rms(mixed, w("post_attention_norm"))
        h = rms(r, w("ffn_norm"))
        hidden = gelu(h @ w("ffn_gate").T) * (h @ w("ffn_up").T)
        x = r + rms(hidden @ w("ffn_down").T, w("post_ffw_norm"))
        x = x + rms((gelu(x @ w("inp_gate").T) * part) @ w("proj").T, w("post_norm"))
        return np.asarray(x * self.values[f"blk.{layer}.layer_output_scale.weight"][0])

    def _attention(self, layer: int, h: Floats) -> Floats:
        w, prefix = self.values, f"blk.{layer}."
        dim = 32 if SLIDES[layer] else 64
        count = len(h)

        def heads(name: str) -> Floats:
            return (h @ w[f"{prefix}{name}.weight"].T).reshape(count, -1, dim)

        q = self._turned(layer, rms(heads("attn_q"), w[f"{prefix}attn_q_norm.weight"]))
        if SOURCES[layer] == layer:
            raw = heads("attn_k")
            k = self._turned(layer, rms(raw, w[f"{prefix}attn_k_norm.weight"]))
            own = f"{prefix}attn_v.weight" in w
            self.remembered[layer] = k, rms(heads("attn_v") if own else raw, np.ones(dim))
        k, v = (np.repeat(x, 4 // x.shape[1], axis=1) for x in self.remembered[SOURCES[layer]])
        scores = np.einsum("ihd,jhd->hij", q, k)
        back = np.arange(count)[:, None] - np.arange(count)
        seen = (back >= 0) & (back < (16 if SLIDES[layer] else count))
        weights = np.exp(np.where(seen, scores, -np.inf) - scores.max())
        weights /= weights.sum(axis=-1, keepdims=True)
        return np.einsum("hij,jhd->ihd", weights, v).reshape(count, -1)

    def _turned(self, layer: int, x: Floats) -> Floats:
        half = x.shape[-1] // 2
        base = 1e4 if SLIDES[layer] else 1e6
        inverse = base ** -(np.arange(half) / half)
        if not SLIDES[layer]:
            inverse = inverse / self.values["rope_freqs.weight"].reshape(-1)
        angle = (np.arange(len(x))[:, None] * inverse)[:, None, :]
        a, b = x[..., :half], x[..., half:]
        cos, sin = np.cos(angle), np.sin(angle)
        return np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


def rms(x: Floats, weight: Floats) -> Floats:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-6) * weight.reshape(-1)


def gelu(x: Floats) -> Floats:
    return 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))


@pytest.mark.parametrize("device", PRESENT)
def test_parts_of_tokens_and_shared_keys_are_as_the_formulas_say(device: str) -> None:
    metadata, infos = small()
    model = build(metadata, infos, open_device(device))
    expected = Oracle(infos)(TOKENS)
    logits = model(TOKENS[:40], logits=40).logits.copy()
    np.testing.assert_allclose(logits, expected[:40], rtol=0, atol=5e-4)
    for row in range(40, len(TOKENS)):
        one = model([TOKENS[row]]).logits[0]
        np.testing.assert_allclose(one, expected[row], rtol=0, atol=5e-4)


def test_only_layers_with_keys_of_their_own_remember() -> None:
    model = build(*small(), open_device("reference"))
    assert len(model.cache.layers) == LAYERS - SHARED


def test_parts_go_with_the_rows_from_device_to_device() -> None:
    host, other = open_device("cpu"), open_device("cpu", threads=1)
    metadata, infos = small({"gemma4.attention.shared_kv_layers": 0})
    own = tensors_of("gemma4")[1]
    infos |= {name: info for name, info in own.items() if name not in infos}
    whole = build(metadata, infos, host)
    split = build(metadata, infos, Placement((host,) * 2 + (other,) * 4, other))
    for tokens in (TOKENS, TOKENS[:1]):
        one = whole(tokens, logits=len(tokens)).logits.copy()
        np.testing.assert_array_equal(split(tokens, logits=len(tokens)).logits, one)


def test_layers_that_share_keys_stay_on_one_device() -> None:
    host, other = open_device("cpu"), open_device("cpu", threads=1)
    with pytest.raises(BadUsage, match="layer 5 looks at the keys of layer 2, so both must be"):
        build(*small(), Placement((host,) * 3 + (other,) * 3, other))


@pytest.mark.parametrize(
    ("keys", "without", "match"),
    [
        ({"gemma4.attention.shared_kv_layers": 7}, (), "'gemma4.attention.shared_kv_layers' is 7"),
        ({"gemma4.attention.shared_kv_layers": 5}, (), "expected one of each kind before these"),
        (
            {"gemma4.attention.value_length_swa": 64},
            (),
            "'gemma4.attention.value_length_swa' is 64",
        ),
        ({"gemma4.rope.dimension_count": 65}, (), "'gemma4.rope.dimension_count' is 65"),
        ({"gemma4.attention.head_count_kv": [2, 2, 1, 1, 2, 1]}, (), "whose heads are others"),
        ({"gemma4.attention.sliding_window": 0}, (), "'gemma4.attention.sliding_window' is 0"),
        ({"gemma4.final_logit_softcapping": -1.0}, (), "final_logit_softcapping' is -1"),
        ({}, ("blk.3.post_norm.weight",), "has no tensor 'blk.3.post_norm.weight'"),
        ({}, ("blk.1.layer_output_scale.weight",), "has no tensor 'blk.1.layer_output_scale.wei"),
        ({}, ("blk.1.attn_v.weight",), "has no tensor 'blk.1.attn_v.weight'"),
    ],
)
def test_files_that_contradict_themselves_are_refused(
    keys: Mapping[str, object], without: tuple[str, ...], match: str
) -> None:
    with pytest.raises(BadModel, match=match):
        build(*small(keys, without), open_device("reference"))
