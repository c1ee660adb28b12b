"""What stands around the blocks of every model: embedding, last norm, head."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from turbodflash_engine.cache import Cache
from turbodflash_engine.errors import BadModel
from turbodflash_engine.layers.head import Head
from turbodflash_engine.layers.steps import Threads
from turbodflash_engine.layers.tables import Table
from turbodflash_engine.layers.tensors import Layout, Tensors
from turbodflash_engine.metadata import Metadata
from turbodflash_engine.models._base import Shared
from turbodflash_engine.models._decoder import Decoder
from turbodflash_engine.models._placement import Placement
from turbodflash_engine.models._stage import Block
from turbodflash_kernels.op import Array, RmsNorm

EMBEDDING, HEAD, NORM = "token_embd.weight", "output.weight", "output_norm.weight"


class Sizes(Protocol):
    """What of a model's configuration the trunk depends on."""

    @property
    def width(self) -> int: ...
    @property
    def layers(self) -> int: ...
    @property
    def vocabulary(self) -> int: ...
    @property
    def eps(self) -> float: ...


def trunk_layout(config: Sizes) -> Layout:
    """The tensors around the blocks; without a head of its own the embedding serves as one."""
    table = (config.width, config.vocabulary)
    return Layout({EMBEDDING: table, NORM: (config.width,)}, {HEAD: table})


def trunk(
    config: Sizes,
    tensors: Tensors,
    placement: Placement,
    blocks: Sequence[Block],
    cache: Cache,
    threads: Threads,
    *,
    embedding_scale: float = 1.0,
    softcap: float = 0.0,
    accompany: Callable[[Array, Array], Array] | None = None,
) -> Decoder:
    """The model of these blocks. softcap: logits stay below it; 0 = they are as they come.

    accompany: as a Decoder has it.
    """
    embedding = Table(tensors, EMBEDDING, config.width)
    head = Table(tensors, HEAD, config.width) if HEAD in tensors else embedding
    weight = tensors.vector(NORM)
    norm = RmsNorm(placement.head.upload(weight), config.eps)
    last = Head(placement.head, head.on(placement.head), norm, softcap, threads)
    last.best(1, config.vocabulary)  # what is bound while a model loads is compiled side by side
    embed = placement.embedding.bind(
        "embed", table=embedding.on(placement.embedding), scale=embedding_scale
    )
    sizes = (config.width, config.layers, config.vocabulary)
    return Decoder(
        placement,
        embed=embed,
        blocks=blocks,
        head=last,
        cache=cache,
        accompany=accompany,
        shared=Shared(
            embedding,
            head,
            embedding_scale,
            *sizes,
            devices=(*placement.layers, placement.layers[-1]),
            norm=(weight, config.eps),
        ),
        threads=threads,
    )


def vocabulary_of(meta: Metadata) -> int:
    """How many tokens a model knows."""
    return meta.get("vocab_size", 0) or len(meta.root.get("tokenizer.ggml.tokens", []))


def softcap_of(meta: Metadata, default: float = 0.0) -> float:
    """What logits stay below; 0 = they are as they come. default: where a file does not say."""
    key = "final_logit_softcapping"
    softcap = meta.get(key, default)
    if not 0 <= softcap < float("inf"):
        raise BadModel(
            f"'{meta.source}': metadata key '{meta.prefix}{key}' is {softcap}, "
            "expected a number that is not below 0"
        )
    return softcap
