"""The tensors of a block draft, and those that make it a form that is not supported."""

from __future__ import annotations

from collections.abc import Container

from turbodflash_engine.drafters._block.config import BlockConfig
from turbodflash_engine.drafters._words import EMBEDDING, HEAD, HEAD_TOKENS
from turbodflash_engine.layers.rope import DIVISORS
from turbodflash_engine.layers.tensors import ANY, Layout

NORM = "output_norm.weight"

VALUES = "blk.{}.attn_v.weight"
PACKED_TWICE = (".attn_k.weight", ".attn_v.weight")
"""With the queries for a block, and those of all layers together for what the model has read."""


def block_layout(config: BlockConfig, present: Container[str]) -> Layout:
    """What every block draft has. Embedding and head are the model's where the file has none."""
    width = config.width
    layout = Layout(
        {
            config.dialect.fusion: (config.fused, width),
            config.dialect.fusion_norm: (width,),
            NORM: (width,),
        },
        {EMBEDDING: (width, ANY), HEAD: (width, ANY), DIVISORS: (config.n_rot // 2,)},
        {HEAD_TOKENS: (ANY,)},
    )
    for layer in range(config.layers):
        layout.add(_layer_layout(f"blk.{layer}.", config, VALUES.format(0) in present))
    return layout


def _layer_layout(prefix: str, config: BlockConfig, values: bool) -> Layout:
    """values: they have a projection of their own. Gemma's drafts make them of what keys are made
    of, norm what comes of a branch, and scale layers.
    """
    width, hidden, inner = config.width, config.hidden, config.heads * config.head_dim
    required: dict[str, tuple[int, ...]] = {
        "attn_norm.weight": (width,),
        "attn_q.weight": (width, inner),
        "attn_k.weight": (width, config.kv_width),
        "attn_output.weight": (inner, width),
        "attn_q_norm.weight": (config.head_dim,),
        "attn_k_norm.weight": (config.head_dim,),
        "ffn_norm.weight": (width,),
        "ffn_gate.weight": (width, hidden),
        "ffn_up.weight": (width, hidden),
        "ffn_down.weight": (hidden, width),
    }
    if config.convolution is not None:
        taps, group = config.convolution
        for branch in ("attn", "ffn"):
            required[f"{branch}_conv_base"] = (width, taps, 2)
            required[f"{branch}_conv_proj.weight"] = (width, 2 * taps * (width // group))
    if values:
        required["attn_v.weight"] = (width, config.kv_width)
    optional: dict[str, tuple[int, ...]] = {"attn_sinks.weight": (config.heads,)}
    if config.convolution is None:
        optional |= {"post_attention_norm.weight": (width,), "post_ffw_norm.weight": (width,)}
        optional["layer_output_scale.weight"] = (1,)
    return Layout(
        {prefix + name: shape for name, shape in required.items()},
        {prefix + name: shape for name, shape in optional.items()},
    )
