"""llama: SmolLM2, Llama 2 and 3, Mistral. Pairs rotate as neighbours; gates are silu."""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from turbodflash_engine.cache import Cache, DenseLayer
from turbodflash_engine.errors import BadModel
from turbodflash_engine.layers.attention import Attention, AttentionShape, attention_layout
from turbodflash_engine.layers.mlp import Mlp, MlpShape, mlp_layout
from turbodflash_engine.layers.rope import RopeConfig, RopeOverrides
from turbodflash_engine.layers.tensors import Layout, Tensors
from turbodflash_engine.metadata import Metadata
from turbodflash_engine.models._base import Architecture, CachePlan, Shared
from turbodflash_engine.models._decoder import Block, Decoder
from turbodflash_kernels.device import Device
from turbodflash_kernels.op import Array, RmsNorm, Rope

EMBEDDING, HEAD, NORM = "token_embd.weight", "output.weight", "output_norm.weight"
DIVISORS = "rope_freqs.weight"
LONG, SHORT = "rope_factors_long.weight", "rope_factors_short.weight"

MOST_LAYERS = 4096  # a count beyond it is a damaged file


class LlamaConfig(NamedTuple):
    """attention, mlp: one shape a layer. context: positions the model was trained on."""

    width: int
    vocabulary: int
    context: int
    eps: float
    attention: tuple[AttentionShape, ...]
    mlp: tuple[MlpShape, ...]
    rope: RopeConfig

    @classmethod
    def read(cls, metadata: Metadata, overrides: RopeOverrides) -> LlamaConfig:
        meta = metadata.for_architecture()
        layers = _positive(meta, "block_count", meta.need("block_count", int), MOST_LAYERS)
        width = _positive(meta, "embedding_length", meta.need("embedding_length", int))
        _refuse_experts(meta)
        hidden = meta.need_per_layer("feed_forward_length", int, layers)
        tokens = metadata.root.get("tokenizer.ggml.tokens", [])
        return cls(
            width=width,
            vocabulary=meta.get("vocab_size", 0) or len(tokens),
            context=_positive(meta, "context_length", meta.need("context_length", int)),
            eps=meta.need("attention.layer_norm_rms_epsilon", float),
            attention=_attention(meta, width, layers),
            mlp=tuple(
                MlpShape(width, _positive(meta, "feed_forward_length", size)) for size in hidden
            ),
            rope=RopeConfig.read(meta, overrides),
        )

    @property
    def layers(self) -> int:
        return len(self.attention)

    @property
    def kv_values(self) -> tuple[int, int]:
        values = sum(shape.kv_heads * shape.head_dim for shape in self.attention)
        return values, values

    @property
    def scratch_values(self) -> int:
        return max(
            3 * self.width + 2 * sum(attention.qkv.values()) + 2 * mlp.hidden
            for attention, mlp in zip(self.attention, self.mlp, strict=True)
        )


def layout(config: LlamaConfig, present: Container[str]) -> Layout:
    half = config.attention[0].head_dim // 2
    table = (config.width, config.vocabulary)
    wanted = Layout({EMBEDDING: table, NORM: (config.width,)}, {HEAD: table, DIVISORS: (half,)})
    if config.rope.scaling == "longrope":
        wanted.optional |= {LONG: (half,), SHORT: (half,)}
    for index, (attention, mlp) in enumerate(zip(config.attention, config.mlp, strict=True)):
        wanted.add(attention_layout(f"blk.{index}.", attention, present))
        wanted.add(mlp_layout(f"blk.{index}.", mlp))
    return wanted


def build(config: LlamaConfig, tensors: Tensors, device: Device, plan: CachePlan) -> Decoder:
    divisors = _divisors(config, tensors, plan.positions)
    memory = [_memory(device, plan, shape) for shape in config.attention]
    embedding = device.pack([tensors.part(EMBEDDING)], config.width)
    rope = config.rope.rope("norm", config.attention[0].head_dim, divisors)
    blocks = [
        _block(device, tensors, config, index, rope, layer) for index, layer in enumerate(memory)
    ]
    head = embedding
    if HEAD in tensors:
        head = device.pack([tensors.part(HEAD)], config.width)
    norm = RmsNorm(device.upload(tensors.vector(NORM)), config.eps)
    return Decoder(
        device,
        embed=device.bind("embed", table=embedding, scale=1.0),
        blocks=blocks,
        head=device.bind("linear", weight=head, prologue=norm, bias=None),
        cache=Cache(memory, plan.positions),
        shared=Shared(embedding, head, 1.0, config.width, config.layers, config.vocabulary),
    )


def _block(
    device: Device,
    tensors: Tensors,
    config: LlamaConfig,
    index: int,
    rope: Rope,
    memory: DenseLayer,
) -> Block:
    prefix, shape = f"blk.{index}.", config.attention[index]
    attention = Attention(device, tensors, prefix, shape, eps=config.eps, rope=rope, memory=memory)
    mlp = Mlp(device, tensors, prefix, config.mlp[index], eps=config.eps, activation="silu")

    def block(x: Array, positions: Array, last: int) -> Array:
        return mlp(attention(x, positions, last))

    return block


def _memory(device: Device, plan: CachePlan, shape: AttentionShape) -> DenseLayer:
    size = (plan.positions, shape.kv_heads, shape.head_dim, shape.head_dim)
    return DenseLayer(device.kv(plan.format_k, plan.format_v, *size))


def _divisors(config: LlamaConfig, tensors: Tensors, positions: int) -> NDArray[np.float32] | None:
    """longrope has two sets, for contexts up to the original one and for longer ones."""
    name = DIVISORS
    if config.rope.scaling == "longrope" and LONG in tensors and SHORT in tensors:
        name = LONG if positions > config.rope.original_context else SHORT
    return tensors.vector(name) if name in tensors else None


def _attention(meta: Metadata, width: int, layers: int) -> tuple[AttentionShape, ...]:
    all_heads = meta.need_per_layer("attention.head_count", int, layers)
    all_kv_heads = (
        meta.need_per_layer("attention.head_count_kv", int, layers)
        if "attention.head_count_kv" in meta
        else all_heads
    )
    head_dim = _head_dim(meta, width, all_heads[0])
    shapes = []
    for heads, kv_heads in zip(all_heads, all_kv_heads, strict=True):
        _positive(meta, "attention.head_count", heads)
        if kv_heads < 1 or heads % kv_heads:
            raise BadModel(
                f"'{meta.source}' has {heads} query heads over {kv_heads} key heads in a layer; "
                "expected a multiple"
            )
        shapes.append(AttentionShape(width, heads, kv_heads, head_dim))
    return tuple(shapes)


def _head_dim(meta: Metadata, width: int, heads: int) -> int:
    head_dim = meta.get("attention.key_length", 0) or width // max(heads, 1)
    for key in ("attention.value_length", "rope.dimension_count"):
        found = meta.get(key, head_dim)
        if found != head_dim:
            raise BadModel(
                f"'{meta.source}': metadata key '{meta.prefix}{key}' is {found}, "
                f"expected the size of a head, {head_dim}"
            )
    if head_dim < 2 or head_dim % 2:
        raise BadModel(f"'{meta.source}' has heads of size {head_dim}, expected an even size")
    return head_dim


def _refuse_experts(meta: Metadata) -> None:
    experts = meta.get("expert_count", 0)
    if experts:
        raise BadModel(
            f"'{meta.source}' is a mixture of {experts} experts, which is not supported yet",
            hint="use a dense model of this family",
        )


def _positive(meta: Metadata, key: str, value: int, most: int = 2**31 - 1) -> int:
    if not 1 <= value <= most:
        raise BadModel(
            f"'{meta.source}': metadata key '{meta.prefix}{key}' is {value:,}, "
            f"expected 1 to {most:,}"
        )
    return value


PLUGIN = Architecture(LlamaConfig.read, layout, build)
