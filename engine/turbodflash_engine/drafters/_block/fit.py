"""Whether a block draft fits the model that it is to draft for."""

from __future__ import annotations

from collections.abc import Container

from turbodflash_engine.drafters._block.config import BlockConfig
from turbodflash_engine.drafters._fit import check_taps, check_width
from turbodflash_engine.drafters._words import EMBEDDING
from turbodflash_engine.errors import BadModel
from turbodflash_engine.models._base import Form, Shared
from turbodflash_engine.options import SpecOptions


def check_block(config: BlockConfig, target: Form, options: SpecOptions) -> None:
    """Raises BadModel unless the draft was made for a model of this form."""
    check_width(config.source, config.width, target)
    dialect = config.dialect
    check_taps(config.source, dialect.layers, config.taps, target, outputs=dialect.outputs)
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
