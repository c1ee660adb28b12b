"""The dialects of block drafts: how files name what they all hold, settled at the door."""

from __future__ import annotations

from typing import NamedTuple

from turbodflash_engine.errors import BadModel
from turbodflash_engine.metadata import Metadata


class Dialect(NamedTuple):
    """Keys are full names. fusion, fusion_norm: the tensors that make one row of the taps.

    outputs: whether layer ids name layers whose output is tapped; otherwise it is their input.
    """

    architecture: str
    layers: str
    block: str
    mask: str
    fusion: str
    fusion_norm: str
    outputs: bool = False


CURRENT = Dialect(
    architecture="dflash",
    layers="dflash.target_layers",
    block="dflash.block_size",
    mask="tokenizer.ggml.mask_token_id",
    fusion="fc.weight",
    fusion_norm="enc.output_norm.weight",
)
EARLY = Dialect(
    architecture="dflash",
    layers="dflash.target_layer_ids",
    block="dflash.block_size",
    mask="dflash.mask_token_id",
    fusion="fc.weight",
    fusion_norm="hidden_norm.weight",
)
FORK = Dialect(
    architecture="dflash-draft",
    layers="dflash-draft.dflash.target_layer_ids",
    block="dflash-draft.dflash.block_size",
    mask="dflash-draft.dflash.mask_token_id",
    fusion="dflash_fc.weight",
    fusion_norm="dflash_hidden_norm.weight",
    outputs=True,
)
DIALECTS = (CURRENT, EARLY, FORK)
ARCHITECTURES = {dialect.architecture for dialect in DIALECTS}


def dialect_of(metadata: Metadata) -> Dialect:
    """The dialect that a file of one of ARCHITECTURES is written in."""
    spoken = [dialect for dialect in DIALECTS if dialect.architecture == metadata.architecture]
    for dialect in spoken:
        if dialect.layers in metadata.root:
            return dialect
    raise BadModel(
        f"'{metadata.source}' is a draft that does not say which layers of the model it looks at: "
        f"it has none of the metadata keys {', '.join(repr(each.layers) for each in spoken)}",
        hint="get the draft from another source, or convert it again",
    )


def taps_of(metadata: Metadata, dialect: Dialect) -> tuple[int, ...]:
    """The layers whose inputs the draft sees, in the order in which it wants them side by side."""
    ids = metadata.root.need_list(dialect.layers, int)
    return tuple(layer + dialect.outputs for layer in ids)


def mask_of(metadata: Metadata, dialect: Dialect) -> int:
    """The token that stands for what is to be guessed."""
    token = metadata.root.get(dialect.mask, None, int)
    if token is None:
        raise BadModel(
            f"'{metadata.source}' has no mask token (metadata key '{dialect.mask}'), "
            "without which nothing can be drafted",
            hint="get the draft from another source, or convert it again with its mask token",
        )
    return token
