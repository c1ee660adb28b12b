"""What plain decoders share: attention and a feed-forward part, or experts, in every layer."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from functools import partial
from typing import Literal, NamedTuple

from turbodflash_engine.cache import Cache, DenseLayer, KVShape
from turbodflash_engine.layers.attention import Attention, AttentionShape, Places, attention_layout
from turbodflash_engine.layers.mlp import Mlp, MlpShape, mlp_layout
from turbodflash_engine.layers.moe import Moe, MoeShape, moe_layout
from turbodflash_engine.layers.rope import RopeConfig, RopeOverrides
from turbodflash_engine.layers.shapes import (
    MOST_LAYERS,
    attention_shapes,
    mlp_shapes,
    moe_shapes,
    positive,
)
from turbodflash_engine.layers.steps import AS_THE_DEVICE, Threads
from turbodflash_engine.layers.tensors import Layout, Tensors
from turbodflash_engine.metadata import Metadata
from turbodflash_engine.models._base import Architecture, CachePlan
from turbodflash_engine.models._decoder import Decoder
from turbodflash_engine.models._memory import memory_of
from turbodflash_engine.models._placement import Placement
from turbodflash_engine.models._stage import Block
from turbodflash_engine.models._trunk import trunk, trunk_layout, vocabulary_of
from turbodflash_kernels.device import Device
from turbodflash_kernels.op import Array, Rope


class Traits(NamedTuple):
    """In what dense architectures differ.

    pairs: the elements that rotate together (see `Rope`). qk_norms: queries and keys are normed,
    head by head, before they are rotated. divisors: a file may bring divisors of frequencies.
    experts: "may" be there in place of feed-forward parts, "must" be there, or are never.
    """

    pairs: Literal["norm", "neox"]
    qk_norms: bool = False
    divisors: bool = False
    experts: Literal["", "may", "must"] = ""


def dense(traits: Traits) -> Architecture:
    """The architecture with these traits."""
    return Architecture(partial(DenseConfig.read, traits), layout, build)


class DenseConfig(NamedTuple):
    """attention, ffn: one shape a layer. context: positions the model was trained on."""

    traits: Traits
    width: int
    vocabulary: int
    context: int
    eps: float
    attention: tuple[AttentionShape, ...]
    ffn: tuple[MlpShape | MoeShape, ...]
    rope: RopeConfig

    @classmethod
    def read(cls, traits: Traits, metadata: Metadata, overrides: RopeOverrides) -> DenseConfig:
        meta = metadata.for_architecture()
        layers = positive(meta, "block_count", MOST_LAYERS)
        width = positive(meta, "embedding_length")
        return cls(
            traits=traits,
            width=width,
            vocabulary=vocabulary_of(meta),
            context=positive(meta, "context_length"),
            eps=meta.need("attention.layer_norm_rms_epsilon", float),
            attention=attention_shapes(meta, width, layers, qk_norms=traits.qk_norms),
            ffn=_ffn_shapes(traits, meta, width, layers),
            rope=RopeConfig.read(meta, overrides),
        )

    @property
    def layers(self) -> int:
        return len(self.attention)

    @property
    def head_dim(self) -> int:
        return self.attention[0].head_dim

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
            3 * self.width + attention.scratch_values + ffn.scratch_values
            for attention, ffn in zip(self.attention, self.ffn, strict=True)
        )

    @property
    def partial_values(self) -> int:
        return max(shape.partial_values for shape in self.attention)


def layout(config: DenseConfig, present: Container[str]) -> Layout:
    wanted = trunk_layout(config)
    if config.traits.divisors:
        wanted.add(config.rope.divisors_layout(config.head_dim))
    for index, (attention, ffn) in enumerate(zip(config.attention, config.ffn, strict=True)):
        prefix = f"blk.{index}."
        wanted.add(attention_layout(prefix, attention, present))
        wanted.add(
            moe_layout(prefix, ffn, present)
            if isinstance(ffn, MoeShape)
            else mlp_layout(prefix, ffn)
        )
    return wanted


def build(
    config: DenseConfig,
    tensors: Tensors,
    placement: Placement,
    plan: CachePlan,
    threads: Threads = AS_THE_DEVICE,
) -> Decoder:
    rope = _rope(config, tensors, plan.positions)
    memory = memory_of(config, placement, [rope] * config.layers, plan)
    blocks = [
        _block(placement.layers[index], tensors, config, index, rope, layer)
        for index, layer in memory.items()
    ]
    return trunk(
        config, tensors, placement, blocks, Cache(list(memory.values()), plan.positions), threads
    )


def _block(
    device: Device,
    tensors: Tensors,
    config: DenseConfig,
    index: int,
    rope: Rope,
    memory: DenseLayer,
) -> Block:
    prefix, shape = f"blk.{index}.", config.attention[index]
    attention = Attention(device, tensors, prefix, shape, eps=config.eps, rope=rope, memory=memory)
    ffn = _ffn(device, tensors, prefix, config.ffn[index], config.eps)

    def block(x: Array, places: Places, last: int) -> Array:
        return ffn(attention(x, places, last))

    return block


def _rope(config: DenseConfig, tensors: Tensors, positions: int) -> Rope:
    rope, traits = config.rope, config.traits
    divisors = rope.divisors(tensors, positions) if traits.divisors else None
    return rope.rope(traits.pairs, config.head_dim, divisors)


def _ffn_shapes(
    traits: Traits, meta: Metadata, width: int, layers: int
) -> tuple[MlpShape | MoeShape, ...]:
    if traits.experts == "must" or (traits.experts and meta.get("expert_count", 0)):
        return moe_shapes(meta, width, layers, split=traits.experts == "must")
    return mlp_shapes(meta, width, layers)


def _ffn(
    device: Device, tensors: Tensors, prefix: str, shape: MlpShape | MoeShape, eps: float
) -> Callable[[Array], Array]:
    if isinstance(shape, MoeShape):
        return Moe(device, tensors, prefix, shape, eps=eps, activation="silu")
    return Mlp(device, tensors, prefix, shape, eps=eps, activation="silu")
