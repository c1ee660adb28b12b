"""Whether a block draft fits the model that it is to draft for."""

from __future__ import annotations

from collections.abc import Container

from turbodflash_engine.drafters._block.config import ANOTHER, BlockConfig
from turbodflash_engine.drafters._block.layout import EMBEDDING
from turbodflash_engine.errors import BadModel
from turbodflash_engine.models._base import Form, Shared
from turbodflash_engine.options import SpecOptions


def check_block(config: BlockConfig, target: Form, options: SpecOptions) -> None:
    """Raises BadModel unless the draft was made for a model of this form."""
    if config.width != target.width:
        raise BadModel(
            f"'{config.source}' drafts for a model of width {config.width}, "
            f"but this one has width {target.width}",
            hint=ANOTHER,
        )
    for layer in config.taps:
        _check_tap(config, layer, target.layers)
    if not config.taps:
        raise BadModel(f"'{config.source}' looks at no layer of the model", hint=ANOTHER)
    if not 0 <= config.mask < config.vocabulary:
        raise BadModel(
            f"'{config.source}' has the mask token {config.mask}, "
            f"expected one of its {config.vocabulary:,} tokens",
            hint="convert the draft again with its mask token",
        )


def notes_on_block(config: BlockConfig, present: Container[str], target: Shared) -> tuple[str, ...]:
    """present: the names of the draft's tensors."""
    if EMBEDDING in present or target.embedding_scale == 1 or config.embedding_scale != 1:
        return ()
    return (
        f"the model multiplies its embeddings by {target.embedding_scale:g}, and '{config.source}' "
        "uses them without saying so (metadata key "
        f"'{config.dialect.architecture}.embedding_scale'); its drafts will rarely be right",
    )


def _check_tap(config: BlockConfig, layer: int, layers: int) -> None:
    if 0 <= layer < layers:
        return
    named = layer - config.dialect.outputs
    wanted = "the output of the model's last layer" if layer == layers else "no layer of the model"
    raise BadModel(
        f"'{config.source}': metadata key '{config.dialect.layers}' has the layer {named}, which "
        f"is {wanted}; of {layers} layers, the inputs of 0 to {layers - 1} can be looked at",
        hint=ANOTHER,
    )
