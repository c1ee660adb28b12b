"""Shapes of layers as metadata gives them, checked before anything is computed with them."""

from __future__ import annotations

from collections.abc import Container, Sequence

from turbodflash_engine.errors import BadModel
from turbodflash_engine.layers.attention import AttentionShape
from turbodflash_engine.layers.mlp import MlpShape
from turbodflash_engine.layers.moe import MoeShape
from turbodflash_engine.metadata import Metadata

MOST_LAYERS = 4096  # a count beyond it is a damaged file
MOST_EXPERTS = 4096


def positive(meta: Metadata, key: str, most: int = 2**31 - 1) -> int:
    """The whole number of a key that must be there, 1 to `most`; raises BadModel."""
    return within(meta, key, meta.need(key, int), most)


def within(meta: Metadata, key: str, value: int, most: int = 2**31 - 1) -> int:
    """The value of a key, if it is 1 to `most`; else raises BadModel."""
    if not 1 <= value <= most:
        raise BadModel(
            f"'{meta.source}': metadata key '{meta.prefix}{key}' is {value:,}, "
            f"expected 1 to {most:,}"
        )
    return value


def attention_shapes(
    meta: Metadata,
    width: int,
    layers: int,
    *,
    qk_norms: bool = False,
    windows: Sequence[int] = (),
    scale: float | None = None,
    gated: bool = False,
    partly: bool = False,
    attending: Container[int] | None = None,
) -> tuple[AttentionShape, ...]:
    """One a layer. Raises BadModel for what attention cannot be computed with.

    qk_norms, windows, scale, gated: as in AttentionShape; windows: one a layer, none at all = all
    see all. partly: heads may be rotated in part. attending: the layers that attend; None = all.
    """
    all_heads = meta.need_per_layer("attention.head_count", int, layers)
    all_kv_heads = (
        meta.need_per_layer("attention.head_count_kv", int, layers)
        if "attention.head_count_kv" in meta
        else all_heads
    )
    head_dim = _head_dim(meta, width, all_heads[0], partly)
    shapes = []
    seen = windows or (0,) * layers
    for layer, (heads, kv_heads) in enumerate(zip(all_heads, all_kv_heads, strict=True)):
        if attending is not None and layer not in attending:
            continue
        check_heads(meta, heads, kv_heads)
        numbers = (width, heads, kv_heads, head_dim)
        shape = AttentionShape(*numbers, qk_norms, seen[layer], scale, gated=gated)
        shapes.append(shape)
    return tuple(shapes)


def check_heads(meta: Metadata, heads: int, kv_heads: int) -> None:
    """Raises BadModel unless so many query heads can share so many key heads."""
    within(meta, "attention.head_count", heads)
    if kv_heads < 1 or heads % kv_heads:
        raise BadModel(
            f"'{meta.source}' has {heads} query heads over {kv_heads} key heads in a layer; "
            "expected a multiple"
        )


def window_sizes(meta: Metadata, layers: int, period: int) -> tuple[int, ...]:
    """How far each layer looks back; 0 = to the beginning. Raises BadModel.

    period: where the file does not say which layers do, every layer but the last of so many looks
    through the window. The file says it layer by layer or by such a period; 0 = all layers do.
    """
    size, key = meta.get("attention.sliding_window", 0), "attention.sliding_window_pattern"
    if not size:
        return (0,) * layers
    within(meta, "attention.sliding_window", size)
    said = meta.get(key)
    if isinstance(said, list):
        slides = meta.need_per_layer(key, bool, layers)
    else:
        every = period if said is None else meta.need(key, int)
        slides = [every == 0 or layer % every < every - 1 for layer in range(layers)]
    return tuple(size if slide else 0 for slide in slides)


def mlp_shapes(meta: Metadata, width: int, layers: int) -> tuple[MlpShape, ...]:
    """One a layer; raises BadModel."""
    key = "feed_forward_length"
    sizes = meta.need_per_layer(key, int, layers)
    return tuple(MlpShape(width, within(meta, key, size)) for size in sizes)


def moe_shapes(
    meta: Metadata, width: int, layers: int, *, shared: bool = False, split: bool = True
) -> tuple[MoeShape, ...]:
    """One a layer; raises BadModel.

    shared: beside the others there is an expert that all rows use.
    split: where experts have no length of their own, those that a row uses have the feed-forward
    length together; else each of them has all of it.
    """
    experts = positive(meta, "expert_count", MOST_EXPERTS)
    all_used = meta.need_per_layer("expert_used_count", int, layers)
    key, shared_key = "expert_feed_forward_length", "expert_shared_feed_forward_length"
    hidden = meta.get_per_layer(key, 0, layers)
    if not all(hidden):
        whole = meta.need_per_layer("feed_forward_length", int, layers)
        hidden = [
            length // max(used, 1) if split else length
            for length, used in zip(whole, all_used, strict=True)
        ]
    beside = positive(meta, shared_key) if shared else 0
    return tuple(
        MoeShape(
            width,
            experts,
            within(meta, "expert_used_count", used, experts),
            within(meta, key, length),
            beside,
        )
        for used, length in zip(all_used, hidden, strict=True)
    )


def _head_dim(meta: Metadata, width: int, heads: int, partly: bool) -> int:
    head_dim = meta.get("attention.key_length", 0) or width // max(heads, 1)
    for key in ("attention.value_length", *(["rope.dimension_count"] * (not partly))):
        found = meta.get(key, head_dim)
        if found != head_dim:
            raise BadModel(
                f"'{meta.source}': metadata key '{meta.prefix}{key}' is {found}, "
                f"expected the size of a head, {head_dim}"
            )
    if head_dim < 2 or head_dim % 2:
        raise BadModel(f"'{meta.source}' has heads of size {head_dim}, expected an even size")
    return head_dim
