"""What an EAGLE-3 file says about its draft, and whether it fits the model it is to draft for."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import NamedTuple

from turbodflash_engine.cache import KVShape
from turbodflash_engine.drafters._fit import check_taps, check_width
from turbodflash_engine.drafters._words import EMBEDDING, HEAD, HEAD_TOKENS
from turbodflash_engine.errors import BadModel
from turbodflash_engine.layers.attention import AttentionShape
from turbodflash_engine.layers.mlp import MlpShape, mlp_layout
from turbodflash_engine.layers.rope import DIVISORS, RopeConfig, RopeOverrides
from turbodflash_engine.layers.shapes import attention_shapes, mlp_shapes, positive
from turbodflash_engine.layers.tensors import ANY, Layout
from turbodflash_engine.metadata import Metadata
from turbodflash_engine.models._base import Form
from turbodflash_engine.options import SpecOptions

TAPS = 3
BLOCK = "blk.0."
FUSION, FUSION_NORM, NORM = "fc.weight", "enc.output_norm.weight", "output_norm.weight"
TOKEN_NORM, FEATURE_NORM = f"{BLOCK}attn_norm.weight", f"{BLOCK}attn_norm_2.weight"
QUERY, KEY = f"{BLOCK}attn_q.weight", f"{BLOCK}attn_k.weight"
VALUE, ATTENDED = f"{BLOCK}attn_v.weight", f"{BLOCK}attn_output.weight"


class Eagle3Config(NamedTuple):
    """width: of the draft's residual stream. target_width: of the model's, TAPS of which are fused.

    norm_before_residual: the normed feature is the residual of attention, not the feature itself.
    norm_before_fc: the taps are normed before they are fused.
    """

    source: str
    width: int
    target_width: int
    taps: tuple[int, ...]
    eps: float
    attention: AttentionShape
    mlp: MlpShape
    rope: RopeConfig
    norm_before_residual: bool
    norm_before_fc: bool

    @property
    def kv_shapes(self) -> tuple[KVShape, ...]:
        return (self.attention.kv_shape,)

    @property
    def state_bytes(self) -> Mapping[int, int]:
        return {}

    @property
    def tap_values(self) -> int:
        """Numbers of the model that it taps, per row."""
        return TAPS * self.target_width

    @property
    def scratch_values(self) -> int:
        """Numbers alive at once per row of the model that is read: its taps, and a layer's own."""
        layer = 2 * sum(self.attention.qkv.values()) + 2 * self.mlp.hidden
        return 2 * self.tap_values + 5 * self.width + layer


def read_eagle3(metadata: Metadata) -> Eagle3Config:
    meta = metadata.for_architecture()
    positive(meta, "block_count", most=1)
    width = positive(meta, "embedding_length")
    return Eagle3Config(
        source=metadata.source,
        width=width,
        target_width=positive(meta, "target_hidden_size"),
        taps=_taps(meta),
        eps=meta.need("attention.layer_norm_rms_epsilon", float),
        attention=attention_shapes(meta, width, 1)[0],
        mlp=mlp_shapes(meta, width, 1)[0],
        rope=RopeConfig.read(meta, RopeOverrides()),
        norm_before_residual=meta.get("norm_before_residual", False),
        norm_before_fc=meta.get("norm_before_fc", False),
    )


def check_eagle3(config: Eagle3Config, target: Form, options: SpecOptions) -> None:
    """Raises BadModel unless the draft was made for a model of this form."""
    check_width(config.source, config.target_width, target)
    check_taps(config.source, "eagle3.target_layers", config.taps, target)


def eagle3_layout(config: Eagle3Config, present: Container[str]) -> Layout:
    width, head_dim = config.width, config.attention.head_dim
    queries, keys, fused = config.attention.heads * head_dim, config.attention.qkv["attn_k"], TAPS
    fused *= config.target_width
    wanted = Layout(
        {
            FUSION: (fused, width),
            NORM: (width,),
            TOKEN_NORM: (width,),
            FEATURE_NORM: (width,),
            QUERY: (2 * width, queries),
            KEY: (2 * width, keys),
            VALUE: (2 * width, keys),
            ATTENDED: (queries, width),
        },
        {EMBEDDING: (width, ANY), HEAD: (width, ANY), DIVISORS: (head_dim // 2,)},
        {HEAD_TOKENS: (ANY,)},
    )
    if config.norm_before_fc:
        wanted.required[FUSION_NORM] = (fused,)
    wanted.add(mlp_layout(BLOCK, config.mlp))
    return wanted


def _taps(meta: Metadata) -> tuple[int, ...]:
    taps = meta.need_list("target_layers", int)
    if len(taps) != TAPS:
        raise BadModel(
            f"'{meta.source}': metadata key '{meta.prefix}target_layers' names {len(taps)} layers, "
            f"expected {TAPS}",
            hint="get the draft from another source, or convert it again",
        )
    return tuple(taps)
