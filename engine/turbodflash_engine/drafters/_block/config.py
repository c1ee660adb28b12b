"""What a block draft's file says about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from turbodflash_engine.cache import KVShape
from turbodflash_engine.drafters._block.dialects import Dialect, dialect_of, mask_of, taps_of
from turbodflash_engine.drafters._fit import ANOTHER
from turbodflash_engine.errors import BadModel
from turbodflash_engine.layers.rope import RopeConfig, RopeOverrides
from turbodflash_engine.layers.shapes import positive, within
from turbodflash_engine.metadata import Metadata

MOST_LAYERS = 256
MOST_BLOCK = 256
MOST_CANDIDATES = 64  # of a row; all pairs of neighbours are scored
BLOCK = 16
"""Tokens of a block where the file does not say."""
ACTIVATIONS: dict[str, Literal["silu", "gelu"]] = {
    "silu": "silu",
    "gelu": "gelu",
    "gelu_pytorch_tanh": "gelu",
}
CONVOLVED = ("block_size", "conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k")
"""Keys that come together: any of the last four makes a DFlash2 of a draft."""


class Convolution(NamedTuple):
    """Of DFlash2: causal over the rows of a block, around attention and around the MLP."""

    taps: int
    group: int


class Selector(NamedTuple):
    """Of DFlash2: scores pairs of neighbouring candidates, `top` of them a row, by rank-r tables.

    The logits it adds to are scaled and, if softcap > 0, capped.
    """

    rank: int
    top: int
    logit_scale: float
    softcap: float


class BlockConfig(NamedTuple):
    """taps: the model's layers whose inputs are fused. block: tokens of a block, as trained.

    windows: how far each layer looks back; 0 = to the beginning. causal: inside the block too.
    scale: multiplies q . k. from_anchor: the first row of a block predicts, too (DSpark).
    confident: whether the file claims a confidence head (DSpark).
    """

    source: str
    dialect: Dialect
    width: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    n_rot: int
    eps: float
    vocabulary: int
    rope: RopeConfig
    divided: bool
    taps: tuple[int, ...]
    mask: int
    block: int
    windows: tuple[int, ...]
    causal: bool
    scale: float
    embedding_scale: float
    activation: Literal["silu", "gelu"]
    convolution: Convolution | None
    selector: Selector | None
    from_anchor: bool
    confident: bool

    @property
    def layers(self) -> int:
        return len(self.windows)

    @property
    def fused(self) -> int:
        """Width of the taps side by side."""
        return len(self.taps) * self.width

    @property
    def kv_width(self) -> int:
        """Numbers of one layer's keys, or of its values, at a position."""
        return self.kv_heads * self.head_dim

    @property
    def kv_shapes(self) -> tuple[KVShape, ...]:
        """What a layer keeps of a position, also of one that it no longer looks back on."""
        group = self.heads // self.kv_heads
        shape = KVShape(self.kv_heads, self.head_dim, self.head_dim, group=group)
        return (shape,) * self.layers

    @property
    def state_bytes(self) -> Mapping[int, int]:
        return {}

    @property
    def tap_values(self) -> int:
        """Numbers of the model that it taps, per row."""
        return self.fused

    @property
    def scratch_values(self) -> int:
        """Numbers alive at once per row of the model that is read: taps, and those that wait."""
        return 2 * self.fused


def read_block(metadata: Metadata) -> BlockConfig:
    """The configuration in a draft's file, in any of its dialects."""
    dialect = dialect_of(metadata)
    meta = metadata.for_architecture()
    _refuse_backbone(meta)
    layers = positive(meta, "block_count", MOST_LAYERS)
    width = positive(meta, "embedding_length")
    heads = positive(meta, "attention.head_count")
    head_dim = _head_dim(meta, width, heads)
    tokens = metadata.root.get("tokenizer.ggml.tokens", [])
    block = metadata.root.get(dialect.block, BLOCK)
    return BlockConfig(
        source=metadata.source,
        dialect=dialect,
        width=width,
        hidden=positive(meta, "feed_forward_length"),
        heads=heads,
        kv_heads=_kv_heads(meta, heads),
        head_dim=head_dim,
        n_rot=_rotated(meta, head_dim),
        eps=meta.need("attention.layer_norm_rms_epsilon", float),
        vocabulary=len(tokens) or meta.get("vocab_size", 0),
        rope=RopeConfig.read(meta, RopeOverrides()),
        divided="rope.dimension_sections" not in meta,
        taps=taps_of(metadata, dialect),
        mask=mask_of(metadata, dialect),
        block=within(metadata.root, dialect.block, block, MOST_BLOCK),
        windows=_windows(meta, layers),
        causal=meta.get("attention.causal", False),
        scale=meta.get("attention.scale", 0.0) or head_dim**-0.5,
        embedding_scale=meta.get("embedding_scale", 0.0) or 1.0,
        activation=_activation(meta),
        convolution=_convolution(meta, width),
        selector=_selector(meta),
        from_anchor=meta.get("sample_from_anchor", True),
        confident=meta.get("has_confidence_head", True),
    )


def _refuse_backbone(meta: Metadata) -> None:
    streams = meta.get("hyper_connection.count", 0)
    if streams:
        raise BadModel(
            f"'{meta.source}' is a draft with {streams} hyper-connected residual streams, "
            "a form that is not supported",
            hint=ANOTHER,
        )
    if meta.get("attention.value_scale", 0.0):
        raise BadModel(
            f"'{meta.source}': metadata key '{meta.prefix}attention.value_scale' is set, "
            "which is not supported yet",
            hint=ANOTHER,
        )


def _head_dim(meta: Metadata, width: int, heads: int) -> int:
    head_dim = meta.get("attention.key_length", width // heads)
    values = meta.get("attention.value_length", head_dim)
    if values != head_dim or head_dim < 2 or head_dim % 2:
        raise BadModel(
            f"'{meta.source}' has heads of {head_dim} for keys and {values} for values, "
            "expected one even size"
        )
    return head_dim


def _rotated(meta: Metadata, head_dim: int) -> int:
    """Elements of a head that rotate."""
    key = "rope.dimension_count"
    count = within(meta, key, meta.get(key, head_dim), most=head_dim)
    if count % 2:
        raise BadModel(
            f"'{meta.source}': metadata key '{meta.prefix}{key}' is {count}, expected whole pairs"
        )
    return count


def _kv_heads(meta: Metadata, heads: int) -> int:
    kv_heads = meta.get("attention.head_count_kv", heads)
    if kv_heads < 1 or heads % kv_heads:
        raise BadModel(
            f"'{meta.source}' has {heads} query heads over {kv_heads} key heads; "
            "expected a multiple"
        )
    return kv_heads


def _windows(meta: Metadata, layers: int) -> tuple[int, ...]:
    window = meta.get("attention.sliding_window", 0)
    if not window:
        return (0,) * layers
    within(meta, "attention.sliding_window", window)
    slides = meta.need_per_layer("attention.sliding_window_pattern", bool, layers)
    return tuple(window if slide else 0 for slide in slides)


def _activation(meta: Metadata) -> Literal["silu", "gelu"]:
    name = meta.get("hidden_activation", "silu")
    if name not in ACTIVATIONS:
        raise BadModel(
            f"'{meta.source}': metadata key '{meta.prefix}hidden_activation' is {name!r}, "
            f"expected one of: {', '.join(ACTIVATIONS)}"
        )
    return ACTIVATIONS[name]


def _is_convolved(meta: Metadata) -> bool:
    """Whether this is a DFlash2; all it takes must then be there."""
    if not any(meta.get(key, 0) for key in CONVOLVED[1:]):
        return False
    missing = [f"'{meta.prefix}{key}'" for key in CONVOLVED if meta.get(key, 0) < 1]
    if missing:
        raise BadModel(
            f"'{meta.source}' is a DFlash2 draft without {', '.join(missing)}",
            hint="get the draft from another source, or convert it again",
        )
    return True


def _convolution(meta: Metadata, width: int) -> Convolution | None:
    if not _is_convolved(meta):
        return None
    taps, group = meta.need("conv_kernel_size", int), meta.need("conv_group_size", int)
    if width % group:
        raise BadModel(
            f"'{meta.source}' has a width of {width}, expected whole groups of {group} channels "
            f"(metadata key '{meta.prefix}conv_group_size')"
        )
    return Convolution(taps, group)


def _selector(meta: Metadata) -> Selector | None:
    if not _is_convolved(meta):
        return None
    return Selector(
        rank=meta.need("selector_rank", int),
        top=positive(meta, "selector_top_k", MOST_CANDIDATES),
        logit_scale=meta.get("logit_scale", 0.0) or 1.0,
        softcap=meta.get("final_logit_softcapping", 0.0),
    )
