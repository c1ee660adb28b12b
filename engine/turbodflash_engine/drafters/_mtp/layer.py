"""The block of MTP: pairs of a token and a normed residual row in, the next such row out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from turbodflash_engine.cache import DenseLayer
from turbodflash_engine.drafters._mtp.config import NORM, MtpConfig
from turbodflash_engine.layers.attention import Attention, Places
from turbodflash_engine.layers.tensors import Tensors
from turbodflash_engine.models._hybrid import feed_forward
from turbodflash_kernels.device import KV, Device, Weight
from turbodflash_kernels.op import Array, RmsNorm


class Norms(NamedTuple):
    """Of the model, before its head: f32[width], and eps."""

    weight: NDArray[np.float32]
    eps: float


class Layer:
    """As drafters of pairs have it (see `_pairs/drafter.py`): a gated attention and what follows.

    A feature is normed as rows are before the model's head, and so is what the block gives: the
    head is applied to it as it is.
    """

    def __init__(
        self,
        device: Device,
        tensors: Tensors,
        config: MtpConfig,
        memory: KV,
        embedding: Weight,
        before_head: Norms,
    ) -> None:
        prefix, model = config.prefix, config.model

        def norm(name: str) -> RmsNorm:
            return RmsNorm(device.upload(tensors.vector(name)), model.eps)

        of_model = RmsNorm(device.upload(before_head.weight), before_head.eps)
        self.rope = model.turning
        self._norm = device.bind("join", norms=(of_model,))
        self._embed = device.bind("embed", table=embedding, scale=1.0)
        halves = (norm(f"{prefix}nextn.enorm.weight"), norm(f"{prefix}nextn.hnorm.weight"))
        self._pair = device.bind("join", norms=halves)
        project = device.pack([tensors.part(f"{prefix}nextn.eh_proj.weight")], 2 * model.width)
        self._project = device.bind("linear", weight=project, prologue=None, bias=None)
        shape = model.attention[config.block]
        self._attention = Attention(
            device,
            tensors,
            prefix,
            shape,
            eps=model.eps,
            rope=self.rope,
            memory=DenseLayer(memory, self.rope),
        )
        self._feed_forward = feed_forward(device, tensors, model, config.block)
        own = [f"{prefix}nextn.shared_head_norm.weight", NORM]
        found = next((norm(name) for name in own if name in tensors), of_model)
        self._last = device.bind("join", norms=(found,))

    def fuse(self, taps: Array) -> Array:
        """f32[n, width], the rows that leave the model's last layer -> features f32[n, width]."""
        features: Array = self._norm(taps)
        return features

    def store(self, tokens: Array, features: Array, positions: Array) -> None:
        """Remember pairs of i32[n] and f32[n, width] at i32[n]."""
        self._attention.remember(self._rows(tokens, features), Places(positions))

    def __call__(self, tokens: Array, features: Array, positions: Array) -> Array:
        """Remember the pairs; what comes after the last of them, f32[1, width]."""
        x = self._attention(self._rows(tokens, features), Places(positions), 1)
        feature: Array = self._last(self._feed_forward(x))
        return feature

    def _rows(self, tokens: Array, features: Array) -> Array:
        rows: Array = self._project(self._pair(self._embed(tokens), features))
        return rows
