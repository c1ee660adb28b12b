"""What hybrid models share: most layers are recurrent, every fourth or so attends."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np

from turbodflash_engine.cache import Cache, DenseLayer, KVShape, RecurrentLayers, state_bytes
from turbodflash_engine.errors import BadModel
from turbodflash_engine.layers.attention import Attention, AttentionShape, Places, attention_layout
from turbodflash_engine.layers.delta_net import DeltaNet, delta_layout, delta_shape, delta_values
from turbodflash_engine.layers.mlp import Mlp, MlpShape, mlp_layout
from turbodflash_engine.layers.moe import Moe, MoeShape, moe_layout
from turbodflash_engine.layers.rope import RopeConfig, RopeOverrides
from turbodflash_engine.layers.shapes import (
    MOST_LAYERS,
    attention_shapes,
    mlp_shapes,
    moe_shapes,
    positive,
    within,
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
from turbodflash_kernels.device import Device, State
from turbodflash_kernels.op import Array, DeltaShape, Rope

INTERVAL = 4
NORM = "post_attention_norm"
"""What norms the input of a feed-forward part, despite its name."""


def hybrid(*, experts: bool) -> Architecture:
    """experts: feed-forward parts are mixtures, with an expert beside them that all rows use."""
    return Architecture(partial(HybridConfig.read, experts), layout, build)


class HybridConfig(NamedTuple):
    """attention: by layer, of those that attend; the others are delta nets of one shape.

    layers: of the trunk. ffn: one a block; blocks behind the trunk predict tokens further ahead.
    n_rot, turns: so many elements of a head belong to pairs, and which of these rotate.
    """

    width: int
    vocabulary: int
    context: int
    eps: float
    layers: int
    attention: Mapping[int, AttentionShape]
    delta: DeltaShape
    ffn: tuple[MlpShape | MoeShape, ...]
    rope: RopeConfig
    n_rot: int
    turns: tuple[bool, ...]

    @classmethod
    def read(cls, experts: bool, metadata: Metadata, overrides: RopeOverrides) -> HybridConfig:
        meta = metadata.for_architecture()
        blocks = positive(meta, "block_count", MOST_LAYERS)
        layers = blocks - meta.get("nextn_predict_layers", 0)
        within(meta, "block_count", layers, blocks)
        width = positive(meta, "embedding_length")
        attending = _attending(meta, layers, blocks)
        shapes = attention_shapes(
            meta, width, blocks, qk_norms=True, gated=True, partly=True, attending=attending
        )
        n_rot = _n_rot(meta, shapes[0].head_dim)
        ffn = moe_shapes(meta, width, blocks, shared=True) if experts else None
        return cls(
            width=width,
            vocabulary=vocabulary_of(meta),
            context=positive(meta, "context_length"),
            eps=meta.need("attention.layer_norm_rms_epsilon", float),
            layers=layers,
            attention=dict(zip(attending, shapes, strict=True)),
            delta=delta_shape(meta),
            ffn=ffn or mlp_shapes(meta, width, blocks),
            rope=RopeConfig.read(meta, overrides),
            n_rot=n_rot,
            turns=_turns(meta, n_rot // 2),
        )

    @property
    def heads_ahead(self) -> range:
        """Blocks behind the trunk."""
        return range(self.layers, len(self.ffn))

    @property
    def kv_layers(self) -> tuple[int, ...]:
        """The layers that `kv_shapes` are of."""
        return tuple(layer for layer in self.attention if layer < self.layers)

    @property
    def kv_shapes(self) -> tuple[KVShape, ...]:
        return tuple(self.attention[layer].kv_shape for layer in self.kv_layers)

    @property
    def recurrent(self) -> tuple[int, ...]:
        """The layers that are delta nets."""
        return tuple(layer for layer in range(self.layers) if layer not in self.attention)

    @property
    def state_bytes(self) -> Mapping[int, int]:
        return dict.fromkeys(self.recurrent, state_bytes(self.delta))

    @property
    def scratch_values(self) -> int:
        mixers = [shape.scratch_values for shape in self.attention.values()]
        ffn = max(shape.scratch_values for shape in self.ffn)
        return 3 * self.width + max(*mixers, delta_values(self.delta)) + ffn

    @property
    def partial_values(self) -> int:
        return max(shape.partial_values for shape in self.attention.values())

    @property
    def turning(self) -> Rope:
        """How heads rotate."""
        rope = self.rope.rope("neox", self.n_rot)
        turns = np.array(self.turns, np.float32)
        return Rope(rope.kind, rope.n_rot, rope.inv_freq * turns, rope.magnitude)


def layout(config: HybridConfig, present: Container[str]) -> Layout:
    wanted = trunk_layout(config)
    for index in range(config.layers):
        wanted.add(_block_layout(config, index, present))
    for index in config.heads_ahead:
        beside = ahead_layout(config, index, present)
        wanted.apart |= beside.required | beside.optional
    return wanted


def ahead_layout(config: HybridConfig, index: int, present: Container[str]) -> Layout:
    """Of a block behind the trunk, which predicts the token after the next."""
    width, prefix = config.width, f"blk.{index}.nextn."
    wanted = _block_layout(config, index, present)
    table = (width, config.vocabulary)
    wanted.required |= {
        f"{prefix}eh_proj.weight": (2 * width, width),
        f"{prefix}enorm.weight": (width,),
        f"{prefix}hnorm.weight": (width,),
    }
    wanted.optional |= {
        f"{prefix}shared_head_norm.weight": (width,),
        f"{prefix}shared_head_head.weight": table,
        f"{prefix}embed_tokens.weight": table,
    }
    return wanted


def build(
    config: HybridConfig,
    tensors: Tensors,
    placement: Placement,
    plan: CachePlan,
    threads: Threads = AS_THE_DEVICE,
) -> Decoder:
    rope = config.turning
    dense = memory_of(config, placement, [rope] * config.layers, plan)
    recurrent, states = _recurrent(config, placement)
    blocks = [
        _block(
            placement.layers[index],
            tensors,
            config,
            index,
            _attention(placement.layers[index], tensors, config, index, rope, dense[index])
            if index in dense
            else _delta_net(placement.layers[index], tensors, config, index, states[index]),
        )
        for index in range(config.layers)
    ]
    cache = Cache([*dense.values(), *recurrent], plan.positions)
    return trunk(config, tensors, placement, blocks, cache, threads)


def _recurrent(
    config: HybridConfig, placement: Placement
) -> tuple[list[RecurrentLayers], dict[int, State]]:
    """A memory on every device that has recurrent layers, and the state of each layer."""
    on: dict[Device, list[int]] = {}
    for layer in config.recurrent:
        on.setdefault(placement.layers[layer], []).append(layer)
    memories: list[RecurrentLayers] = []
    states: dict[int, State] = {}
    for device, layers in on.items():
        memories.append(RecurrentLayers(device, config.delta, len(layers)))
        states |= dict(zip(layers, memories[-1].states, strict=True))
    return memories, states


def _attention(
    device: Device,
    tensors: Tensors,
    config: HybridConfig,
    index: int,
    rope: Rope,
    memory: DenseLayer,
) -> Block:
    prefix, shape = f"blk.{index}.", config.attention[index]
    return Attention(device, tensors, prefix, shape, eps=config.eps, rope=rope, memory=memory)


def _delta_net(
    device: Device, tensors: Tensors, config: HybridConfig, index: int, state: State
) -> Block:
    prefix = f"blk.{index}."
    return DeltaNet(device, tensors, prefix, config.width, eps=config.eps, state=state)


def _block(
    device: Device, tensors: Tensors, config: HybridConfig, index: int, mixer: Block
) -> Block:
    ffn = feed_forward(device, tensors, config, index)

    def block(x: Array, places: Places, last: int) -> Array:
        return ffn(mixer(x, places, last))

    return block


def feed_forward(
    device: Device, tensors: Tensors, config: HybridConfig, index: int
) -> Callable[[Array], Array]:
    """What follows attention, or a delta net, in a block: f32[n, width] -> f32[n, width]."""
    prefix, shape, eps = f"blk.{index}.", config.ffn[index], config.eps
    if isinstance(shape, MoeShape):
        return Moe(device, tensors, prefix, shape, eps=eps, activation="silu", norm=NORM)
    return Mlp(device, tensors, prefix, shape, eps=eps, activation="silu", norm=NORM)


def _block_layout(config: HybridConfig, index: int, present: Container[str]) -> Layout:
    prefix, ffn = f"blk.{index}.", config.ffn[index]
    if index in config.attention:
        wanted = attention_layout(prefix, config.attention[index], present)
    else:
        wanted = delta_layout(prefix, config.width, config.delta)
    wanted.add(
        moe_layout(prefix, ffn, present, norm=NORM)
        if isinstance(ffn, MoeShape)
        else mlp_layout(prefix, ffn, norm=NORM)
    )
    return wanted


def _attending(meta: Metadata, layers: int, blocks: int) -> tuple[int, ...]:
    """The layers of the trunk that attend, and all blocks behind it. Raises BadModel for none."""
    interval = meta.get("full_attention_interval", INTERVAL)
    within(meta, "full_attention_interval", interval)
    recurrent = [(layer + 1) % interval != 0 for layer in range(layers)]
    if "attention.recurrent_layers" in meta:
        recurrent = meta.need_per_layer("attention.recurrent_layers", bool, blocks)[:layers]
    attending = tuple(layer for layer in range(layers) if not recurrent[layer])
    if not attending or len(attending) == layers:
        raise BadModel(
            f"'{meta.source}': {len(attending)} of {layers} layers attend; expected some, not all"
        )
    return attending + tuple(range(layers, blocks))


def _n_rot(meta: Metadata, head_dim: int) -> int:
    n_rot = meta.get("rope.dimension_count", head_dim)
    if n_rot % 2:
        raise BadModel(
            f"'{meta.source}': metadata key '{meta.prefix}rope.dimension_count' is {n_rot}, "
            "expected an even number"
        )
    return within(meta, "rope.dimension_count", n_rot, head_dim)


def _turns(meta: Metadata, pairs: int) -> tuple[bool, ...]:
    """Which pairs rotate with a text: all, but those of a section that text has no place in.

    Pairs take turns in three sections, for time, height and width; a text advances in all three.
    """
    key = "rope.dimension_sections"
    sections = meta.need_list(key, int)
    if len(sections) != 4 or min(sections) < 0 or not sum(sections):
        raise BadModel(
            f"'{meta.source}': metadata key '{meta.prefix}{key}' is {sections}, "
            "expected four numbers that are not below 0"
        )
    places = (pair % sum(sections) for pair in range(pairs))
    return tuple(place < 3 * sections[place % 3] for place in places)
