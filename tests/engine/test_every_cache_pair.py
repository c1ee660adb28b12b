"""All pairs of cache types on small models: they run, and spoil what their types predict."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.engine.tiny_models import golden, path_of
from tests.kernels.test_kv_types import ERROR
from turbodflash_engine import plugins
from turbodflash_engine.gguf import open_gguf
from turbodflash_engine.layers.rope import RopeOverrides
from turbodflash_engine.layers.tensors import Tensors
from turbodflash_engine.models._base import CachePlan, Model
from turbodflash_engine.models._placement import Placement
from turbodflash_engine.options import CACHE_TYPES
from turbodflash_engine.quant import weight_type
from turbodflash_kernels.device import Device, open_device

LOST = {"f32": 0.0, "f16": 2.0**-24, "bf16": 2.0**-18} | ERROR
"""Mean square error of a type over that of numbers, in order of size."""
NOISE = 1e-5  # of logits computed in float32 in another order

on_every_device = pytest.mark.parametrize(
    ("name", "device"), [("llama", "cpu"), ("qwen3", "cpu"), ("llama", "reference")]
)


class Tiny:
    """A small model whose cache can be had in any types."""

    def __init__(self, name: str, device: Device) -> None:
        file = open_gguf(path_of(name))
        self.architecture = plugins.find("models", file.metadata.architecture)
        self.config = self.architecture.read(file.metadata, RopeOverrides())
        self.tensors = Tensors(
            dict(file.tensors), name, lambda info: weight_type(info.type, info.name)
        )
        self.tensors.check(self.architecture.layout(self.config, self.tensors))
        self.placement = Placement.on(device, self.config.layers)
        self.tokens = [int(token) for token in golden(name)["tokens"]]
        self.exact = self.logits("f32", "f32")

    def model(self, k: str, v: str) -> Model:
        plan = CachePlan(256, k, v)
        return self.architecture.build(self.config, self.tensors, self.placement, plan)

    def logits(self, k: str, v: str) -> NDArray[np.float32]:
        """Of a prompt, and of two steps after it."""
        model = self.model(k, v)
        rows = [model(self.tokens, logits=len(self.tokens)).logits.copy()]
        rows += [model([token]).logits.copy() for token in self.tokens[:2]]
        return np.concatenate(rows)

    @cache  # noqa: B019 - as few live as there are models
    def spoilt(self, k: str, v: str) -> float:
        """Root mean square error of logits, over their deviation."""
        logits = self.logits(k, v)
        assert np.isfinite(logits).all()
        return float(np.sqrt(np.square(logits - self.exact).mean()) / self.exact.std())


@cache
def tiny(name: str, device: str) -> Tiny:
    return Tiny(name, open_device(device))


@on_every_device
@pytest.mark.parametrize("k", CACHE_TYPES)
def test_errors_of_keys_and_values_add_up(name: str, device: str, k: str) -> None:
    model = tiny(name, device)
    for v in CACHE_TYPES:
        apart = model.spoilt(k, "f32") ** 2 + model.spoilt("f32", v) ** 2
        together = model.spoilt(k, v) ** 2
        assert 0.5 * apart - NOISE**2 <= together <= 1.6 * apart + NOISE**2, (k, v)


@on_every_device
@pytest.mark.parametrize("side", ["keys", "values"])
def test_logits_lose_in_proportion_to_what_the_type_does(name: str, device: str, side: str) -> None:
    """So many times the error of a number, whatever the type is."""
    model = tiny(name, device)
    factors = [
        model.spoilt(*((type, "f32") if side == "keys" else ("f32", type))) / np.sqrt(LOST[type])
        for type in CACHE_TYPES
        if LOST[type]
    ]
    middle = float(np.median(factors))
    assert all(0.5 * middle <= factor <= 2 * middle for factor in factors), factors


@on_every_device
@pytest.mark.parametrize("type", CACHE_TYPES)
def test_a_cache_that_forgot_is_close_to_one_filled_afresh(
    name: str, device: str, type: str
) -> None:
    """Of the first layer, whose keys are told nothing by other tokens; any type, K = V."""
    tiny_model = tiny(name, device)
    forgetful, fresh = (tiny_model.model(type, type) for _ in range(2))
    kept = tiny_model.tokens[:4] + tiny_model.tokens[20:]
    forgetful(tiny_model.tokens)
    forgetful.cache.forget(4, 20)
    fresh(kept)
    assert forgetful.cache.length == fresh.cache.length == len(kept)
    ours, theirs = (model.cache.layers[0].kv.read(0, len(kept)) for model in (forgetful, fresh))
    np.testing.assert_array_equal(ours[1], theirs[1])
    np.testing.assert_array_equal(ours[0][:4], theirs[0][:4])
    moved = np.square(ours[0] - theirs[0]).mean() / np.square(theirs[0]).mean()
    assert moved <= 4 * LOST[type] + 1e-9
    assert np.isfinite(forgetful(tiny_model.tokens[:3]).logits).all()
