"""gemma3: norms on both sides of each part, five layers of six look through a window."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import NamedTuple

from turbodflash_engine.cache import Cache, DenseLayer, KVShape
from turbodflash_engine.layers.attention import Attention, AttentionShape, Places, attention_layout
from turbodflash_engine.layers.mlp import Mlp, MlpShape, mlp_layout
from turbodflash_engine.layers.rope import RopeConfig, RopeOverrides
from turbodflash_engine.layers.shapes import (
    MOST_LAYERS,
    attention_shapes,
    mlp_shapes,
    positive,
    window_sizes,
)
from turbodflash_engine.layers.steps import AS_THE_DEVICE, Threads
from turbodflash_engine.layers.tensors import Layout, Tensors
from turbodflash_engine.metadata import Metadata
from turbodflash_engine.models._base import Architecture, CachePlan
from turbodflash_engine.models._decoder import Decoder
from turbodflash_engine.models._memory import memory_of
from turbodflash_engine.models._placement import Placement
from turbodflash_engine.models._stage import Block
from turbodflash_engine.models._trunk import softcap_of, trunk, trunk_layout, vocabulary_of
from turbodflash_kernels.device import Device
from turbodflash_kernels.op import Array, Rope

PERIOD = 6
WINDOW_BASE = 10_000.0
POST_ATTENTION, POST_MLP = "post_attention_norm", "post_ffw_norm"

LAYERS_27B = 62
"""The model of so many layers scales by the width that a head would have, not by the one it has."""


class Gemma3Config(NamedTuple):
    """attention, mlp: one shape a layer. context: positions the model was trained on.

    rope, window_rope: of layers that see all, and of those that look through a window.
    softcap: logits stay below it; 0 = there is none.
    """

    width: int
    vocabulary: int
    context: int
    eps: float
    attention: tuple[AttentionShape, ...]
    mlp: tuple[MlpShape, ...]
    rope: RopeConfig
    window_rope: RopeConfig
    softcap: float

    @classmethod
    def read(cls, metadata: Metadata, overrides: RopeOverrides) -> Gemma3Config:
        meta = metadata.for_architecture()
        layers = positive(meta, "block_count", MOST_LAYERS)
        width = positive(meta, "embedding_length")
        rope = RopeConfig.read(meta, overrides)
        return cls(
            width=width,
            vocabulary=vocabulary_of(meta),
            context=positive(meta, "context_length"),
            eps=meta.need("attention.layer_norm_rms_epsilon", float),
            attention=attention_shapes(
                meta,
                width,
                layers,
                qk_norms=True,
                windows=window_sizes(meta, layers, PERIOD),
                scale=_scale(meta, width, layers),
            ),
            mlp=mlp_shapes(meta, width, layers),
            rope=rope,
            window_rope=rope.unscaled(meta, "rope.freq_base_swa", WINDOW_BASE),
            softcap=softcap_of(meta),
        )

    @property
    def layers(self) -> int:
        return len(self.attention)

    @property
    def kv_shapes(self) -> tuple[KVShape, ...]:
        return tuple(shape.kv_shape for shape in self.attention)

    @property
    def kv_layers(self) -> range:
        return range(self.layers)

    @property
    def state_bytes(self) -> Mapping[int, int]:
        return {}

    @property
    def scratch_values(self) -> int:
        return max(
            4 * self.width + attention.scratch_values + mlp.scratch_values
            for attention, mlp in zip(self.attention, self.mlp, strict=True)
        )

    @property
    def partial_values(self) -> int:
        return max(shape.partial_values for shape in self.attention)


def layout(config: Gemma3Config, present: Container[str]) -> Layout:
    wanted = trunk_layout(config)
    for index, (attention, mlp) in enumerate(zip(config.attention, config.mlp, strict=True)):
        prefix = f"blk.{index}."
        wanted.add(attention_layout(prefix, attention, present, post=POST_ATTENTION))
        wanted.add(mlp_layout(prefix, mlp, post=POST_MLP))
    return wanted


def build(
    config: Gemma3Config,
    tensors: Tensors,
    placement: Placement,
    plan: CachePlan,
    threads: Threads = AS_THE_DEVICE,
) -> Decoder:
    ropes = [_rope(config, shape) for shape in config.attention]
    memory = memory_of(config, placement, ropes, plan)
    blocks = [
        _block(placement.layers[index], tensors, config, index, ropes[index], layer)
        for index, layer in memory.items()
    ]
    return trunk(
        config,
        tensors,
        placement,
        blocks,
        Cache(list(memory.values()), plan.positions),
        threads,
        embedding_scale=config.width**0.5,
        softcap=config.softcap,
    )


def _block(
    device: Device,
    tensors: Tensors,
    config: Gemma3Config,
    index: int,
    rope: Rope,
    memory: DenseLayer,
) -> Block:
    attention = Attention(
        device,
        tensors,
        f"blk.{index}.",
        config.attention[index],
        eps=config.eps,
        rope=rope,
        memory=memory,
        post=POST_ATTENTION,
    )
    mlp = Mlp(
        device,
        tensors,
        f"blk.{index}.",
        config.mlp[index],
        eps=config.eps,
        activation="gelu",
        post=POST_MLP,
    )

    def block(x: Array, places: Places, last: int) -> Array:
        return mlp(attention(x, places, last))

    return block


def _rope(config: Gemma3Config, shape: AttentionShape) -> Rope:
    rope = config.window_rope if shape.window else config.rope
    return rope.rope("neox", shape.head_dim)


def _scale(meta: Metadata, width: int, layers: int) -> float | None:
    if layers != LAYERS_27B:
        return None
    heads = meta.need_per_layer("attention.head_count", int, layers)[0]
    return float((width / max(heads, 1)) ** -0.5)


PLUGIN = Architecture(Gemma3Config.read, layout, build)
