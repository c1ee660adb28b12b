"""The one layer of EAGLE-3: pairs of a token and a feature in, the next feature out."""

from __future__ import annotations

from turbodflash_engine.drafters._eagle3.config import (
    ATTENDED,
    BLOCK,
    FEATURE_NORM,
    FUSION,
    FUSION_NORM,
    KEY,
    QUERY,
    TOKEN_NORM,
    VALUE,
    Eagle3Config,
)
from turbodflash_engine.layers.mlp import Mlp
from turbodflash_engine.layers.rope import DIVISORS
from turbodflash_engine.layers.tensors import Tensors
from turbodflash_kernels.device import KV, Device, Weight
from turbodflash_kernels.op import Array, RmsNorm


class Layer:
    """Keys and values of pairs go to `memory`; the slot of a pair is its feature's position.

    What is not finite there would spoil all drafts to come, so it becomes 0 (see `rope_store`).

    embedding: [tokens, width], whose rows are used as they are. rope: what keys are rotated by.
    """

    def __init__(
        self, device: Device, tensors: Tensors, config: Eagle3Config, memory: KV, embedding: Weight
    ) -> None:
        fusion = device.pack([tensors.part(FUSION)], len(config.taps) * config.target_width)
        fusion_norm = _norm(device, tensors, FUSION_NORM, config) if config.norm_before_fc else None
        self._fuse = device.bind("linear", weight=fusion, prologue=fusion_norm, bias=None)
        self._embed = device.bind("embed", table=embedding, scale=1.0)
        token_norm = _norm(device, tensors, TOKEN_NORM, config)
        feature_norm = _norm(device, tensors, FEATURE_NORM, config)
        self._pair = device.bind("join", norms=(token_norm, feature_norm))
        residual_norm = feature_norm if config.norm_before_residual else None
        self._residual = device.bind("join", norms=(residual_norm,))
        self._bind_attention(device, tensors, config, memory)
        self._mlp = Mlp(device, tensors, BLOCK, config.mlp, eps=config.eps, activation="silu")

    def _bind_attention(
        self, device: Device, tensors: Tensors, config: Eagle3Config, memory: KV
    ) -> None:
        shape = config.attention
        queries = device.pack([tensors.part(QUERY)], 2 * config.width)
        keys_values = device.pack([tensors.part(KEY), tensors.part(VALUE)], 2 * config.width)
        output = device.pack([tensors.part(ATTENDED)], shape.heads * shape.head_dim)
        self._queries = device.bind("linear", weight=queries, prologue=None, bias=None)
        self._keys_values = device.bind("linear", weight=keys_values, prologue=None, bias=None)
        self._qkv = device.bind("join", norms=(None, None))
        divisors = tensors.vector(DIVISORS) if DIVISORS in tensors else None
        self.rope = config.rope.rope("norm", shape.head_dim, divisors)
        form = {"kv": memory, "kv_heads": shape.kv_heads, "head_dim": shape.head_dim}
        self._store, self._rotate = (
            device.bind("rope_store", heads=heads, **form, rope=self.rope, finite=True)
            for heads in (0, shape.heads)
        )
        scale = shape.head_dim**-0.5
        self._attend = device.bind("attend", heads=shape.heads, **form, scale=scale)
        self._output = device.bind("linear", weight=output, prologue=None, bias=None)

    def fuse(self, taps: Array) -> Array:
        """Residual rows side by side, f32[n, taps * target width] -> features f32[n, width]."""
        return self._fuse(taps)

    def store(self, tokens: Array, features: Array, positions: Array) -> None:
        """Remember pairs of i32[n] and f32[n, width] at i32[n]."""
        pairs = self._pair(self._embed(tokens), features)
        self._store(self._keys_values(pairs), positions)

    def __call__(self, tokens: Array, features: Array, positions: Array) -> Array:
        """Remember the pairs; what comes after the last of them, f32[1, width]."""
        pairs = self._pair(self._embed(tokens), features)
        keys_values = self._keys_values(pairs)
        last = pairs.shape[0] - 1
        if last:
            self._store(keys_values[:last], positions[:last])
        qkv = self._qkv(self._queries(pairs[last:]), keys_values[last:])
        attended = self._attend(self._rotate(qkv, positions[last:]), positions[last:])
        return self._mlp(self._output(attended, self._residual(features[last:])))


def _norm(device: Device, tensors: Tensors, name: str, config: Eagle3Config) -> RmsNorm:
    return RmsNorm(device.upload(tensors.vector(name)), config.eps)
