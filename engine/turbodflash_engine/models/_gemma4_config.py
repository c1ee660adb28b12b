"""What a file of gemma4 says, and the tensors it must hold for that."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import NamedTuple

from turbodflash_engine.cache import KVShape
from turbodflash_engine.errors import BadModel
from turbodflash_engine.layers.attention import AttentionShape, attention_layout
from turbodflash_engine.layers.mlp import MlpShape, mlp_layout
from turbodflash_engine.layers.moe import MoeShape, moe_layout
from turbodflash_engine.layers.rope import DIVISORS, RopeConfig, RopeOverrides
from turbodflash_engine.layers.shapes import (
    MOST_LAYERS,
    check_heads,
    mlp_shapes,
    moe_shapes,
    positive,
    within,
)
from turbodflash_engine.layers.tensors import Layout
from turbodflash_engine.metadata import Metadata
from turbodflash_engine.models._trunk import softcap_of, trunk_layout, vocabulary_of

SLIDING_BASE = 10_000.0
SOFTCAP = 30.0
"""Of the logits, where a file does not say."""

POST_ATTENTION, POST_FFN = "post_attention_norm", "post_ffw_norm"
EXPERTS_NORM = "pre_ffw_norm_2"
POST_MLP, POST_EXPERTS = "post_ffw_norm_1", "post_ffw_norm_2"
ROUTER_SCALE, LAYER_SCALE = "ffn_gate_inp.scale", "layer_output_scale.weight"

PARTS, PARTS_PROJECTION = "per_layer_token_embd.weight", "per_layer_model_proj.weight"
PARTS_NORM = "per_layer_proj_norm.weight"
PART_GATE, PART_OUTPUT, PART_NORM = "inp_gate.weight", "proj.weight", "post_norm.weight"


class Gemma4Config(NamedTuple):
    """attention, mlp, moe: one shape a layer; moe is empty in models without experts.

    sources: whose keys and values each layer looks at, its own or those of an earlier layer.
    rope, sliding_rope: of layers that see all, and of those that look through a window; n_rot,
    sliding_n_rot: numbers of a head that they rotate. part: width of what a token brings to each
    layer; 0 = nothing. softcap: logits stay below it; 0 = there is none.
    """

    width: int
    vocabulary: int
    context: int
    eps: float
    attention: tuple[AttentionShape, ...]
    sources: tuple[int, ...]
    mlp: tuple[MlpShape, ...]
    moe: tuple[MoeShape, ...]
    rope: RopeConfig
    sliding_rope: RopeConfig
    n_rot: int
    sliding_n_rot: int
    part: int
    softcap: float

    @classmethod
    def read(cls, metadata: Metadata, overrides: RopeOverrides) -> Gemma4Config:
        meta = metadata.for_architecture()
        layers = positive(meta, "block_count", MOST_LAYERS)
        width = positive(meta, "embedding_length")
        rope = RopeConfig.read(meta, overrides)
        slides = meta.need_per_layer("attention.sliding_window_pattern", bool, layers)
        sources = _sources(meta, slides)
        heads = _Heads.read(meta, width), _Heads.read(meta, width, "_swa")
        attention = _attention(meta, width, slides, sources, heads)
        return cls(
            width=width,
            vocabulary=vocabulary_of(meta),
            context=positive(meta, "context_length"),
            eps=meta.need("attention.layer_norm_rms_epsilon", float),
            attention=attention,
            sources=sources,
            mlp=mlp_shapes(meta, width, layers),
            moe=moe_shapes(meta, width, layers) if meta.get("expert_count", 0) else (),
            rope=rope,
            sliding_rope=rope.unscaled(meta, "rope.freq_base_swa", SLIDING_BASE),
            n_rot=heads[0].n_rot,
            sliding_n_rot=heads[1].n_rot,
            part=_part(meta),
            softcap=softcap_of(meta, SOFTCAP),
        )

    @property
    def layers(self) -> int:
        return len(self.attention)

    @property
    def kv_layers(self) -> tuple[int, ...]:
        """The layers that remember keys and values."""
        return tuple(layer for layer, source in enumerate(self.sources) if layer == source)

    @property
    def kv_shapes(self) -> tuple[KVShape, ...]:
        return tuple(self.attention[layer].kv_shape for layer in self.kv_layers)

    @property
    def state_bytes(self) -> Mapping[int, int]:
        return {}

    @property
    def scratch_values(self) -> int:
        moe = max((shape.scratch_values for shape in self.moe), default=0)
        return max(
            4 * self.width + attention.scratch_values + mlp.scratch_values + moe
            for attention, mlp in zip(self.attention, self.mlp, strict=True)
        ) + self.layers * (3 * self.part)

    @property
    def partial_values(self) -> int:
        return max(shape.partial_values for shape in self.attention)


class _Heads(NamedTuple):
    """Of one kind of layers: numbers of a head, and how many of them rotate."""

    dim: int
    n_rot: int

    @classmethod
    def read(cls, meta: Metadata, width: int, suffix: str = "") -> _Heads:
        """suffix: of the keys that speak of these layers."""
        key, value = f"attention.key_length{suffix}", f"attention.value_length{suffix}"
        dim = positive(meta, key)
        if meta.get(value, dim) != dim:
            raise BadModel(
                f"'{meta.source}': metadata key '{meta.prefix}{value}' is {meta.get(value, dim)}, "
                f"expected as many as '{meta.prefix}{key}' says, {dim}"
            )
        rotated = f"rope.dimension_count{suffix}"
        n_rot = within(meta, rotated, meta.get(rotated, dim), most=dim)
        if n_rot % 2 or dim % 2:
            raise BadModel(
                f"'{meta.source}': of heads of {dim} numbers {n_rot} rotate; expected whole pairs "
                f"(metadata keys '{meta.prefix}{key}' and '{meta.prefix}{rotated}')"
            )
        return cls(dim, n_rot)


def _attention(
    meta: Metadata,
    width: int,
    slides: list[bool],
    sources: tuple[int, ...],
    heads: tuple[_Heads, _Heads],
) -> tuple[AttentionShape, ...]:
    layers = len(slides)
    window = positive(meta, "attention.sliding_window")
    queries = meta.need_per_layer("attention.head_count", int, layers)
    keys = meta.need_per_layer("attention.head_count_kv", int, layers)
    full, sliding = heads
    shapes = []
    for layer, slide in enumerate(slides):
        check_heads(meta, queries[layer], keys[layer])
        shapes.append(
            AttentionShape(
                width,
                queries[layer],
                keys[layer],
                (sliding if slide else full).dim,
                qk_norms=True,
                window=window if slide else 0,
                scale=1.0,
                v_norm=True,
                remembers=sources[layer] == layer,
            )
        )
    for layer, source in enumerate(sources):
        if shapes[layer].kv_shape[:4] != shapes[source].kv_shape[:4]:
            raise BadModel(
                f"'{meta.source}': layer {layer} looks at the keys of layer {source}, whose heads "
                f"are others (metadata key '{meta.prefix}attention.shared_kv_layers')"
            )
    return tuple(shapes)


def _sources(meta: Metadata, slides: list[bool]) -> tuple[int, ...]:
    """The last layers look at the keys of the last one of their kind before them."""
    key, layers = "attention.shared_kv_layers", len(slides)
    first = layers - meta.get(key, 0)
    before = {slide: layer for layer, slide in enumerate(slides[: max(first, 0)])}
    if first > layers or any(slide not in before for slide in slides[first:]):
        raise BadModel(
            f"'{meta.source}': metadata key '{meta.prefix}{key}' is {layers - first} of {layers} "
            "layers; expected one of each kind before these"
        )
    return (*range(first), *(before[slide] for slide in slides[first:]))


def _part(meta: Metadata) -> int:
    key = "embedding_length_per_layer_input"
    part = meta.get(key, 0)
    return within(meta, key, part) if part else 0


def layout(config: Gemma4Config, present: Container[str]) -> Layout:
    wanted = trunk_layout(config)
    wanted.optional[DIVISORS] = (config.n_rot // 2,)
    if config.part:
        wanted.add(_parts_layout(config))
    for layer in range(config.layers):
        wanted.add(_layer_layout(config, layer, present))
    return wanted


def _layer_layout(config: Gemma4Config, layer: int, present: Container[str]) -> Layout:
    prefix, width = f"blk.{layer}.", config.width
    wanted = attention_layout(
        prefix,
        config.attention[layer],
        present,
        post=POST_ATTENTION,
        values=_have_values(config, layer, present),
    )
    wanted.add(mlp_layout(prefix, config.mlp[layer], post=POST_FFN))
    if any(f"blk.{at}.{LAYER_SCALE}" in present for at in range(config.layers)):
        wanted.required[prefix + LAYER_SCALE] = (1,)
    if config.moe:
        wanted.add(moe_layout(prefix, config.moe[layer], present, norm=EXPERTS_NORM))
        for name in (f"{POST_MLP}.weight", f"{POST_EXPERTS}.weight", ROUTER_SCALE):
            wanted.required[prefix + name] = (width,)
    if config.part:
        wanted.required |= {
            prefix + PART_GATE: (width, config.part),
            prefix + PART_OUTPUT: (config.part, width),
            prefix + PART_NORM: (width,),
        }
    return wanted


def _have_values(config: Gemma4Config, layer: int, present: Container[str]) -> bool:
    """Whether values of layers of this kind have a projection of their own."""
    window = config.attention[layer].window
    alike = (at for at in config.kv_layers if config.attention[at].window == window)
    return any(f"blk.{at}.attn_v.weight" in present for at in alike)


def _parts_layout(config: Gemma4Config) -> Layout:
    all_parts = config.part * config.layers
    return Layout(
        {
            PARTS: (all_parts, config.vocabulary),
            PARTS_PROJECTION: (config.width, all_parts),
            PARTS_NORM: (config.part,),
        }
    )
