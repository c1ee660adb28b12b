"""Which models a base file belongs to: all of one vocabulary, whatever their weights."""

from __future__ import annotations

import hashlib

from turbodflash_engine.errors import BadUsage
from turbodflash_engine.loading import Loaded
from turbodflash_engine.perplexity.base_file import BaseFile, Header
from turbodflash_engine.perplexity.windows import Shape, Windows
from turbodflash_engine.tokenizer import Tokenizer


def check_base(loaded: Loaded, base: BaseFile) -> None:
    """Raises BadUsage unless the base is of this vocabulary; the weights may differ."""
    header = base.header
    fits = header.vocabulary == loaded.model.vocabulary
    if not fits or header.vocabulary_hash != _vocabulary_hash(loaded.tokenizer):
        raise BadUsage(
            f"the base file is of a model with another vocabulary: {header.model}, "
            f"{header.vocabulary:,} tokens; {loaded.info.name} has {loaded.model.vocabulary:,}",
            hint="write a base with this model, or with a larger file of it",
        )
    if base.windows.tokens.min() < 0 or base.windows.tokens.max() >= header.vocabulary:
        raise BadUsage("the base file is damaged: it holds tokens that there are not")


def header_of(loaded: Loaded, windows: Windows, shape: Shape) -> Header:
    """What a base file of this model says of itself."""
    info = loaded.info
    return Header(
        model=info.name,
        cache=f"{info.cache_type_k}/{info.cache_type_v}",
        vocabulary=loaded.model.vocabulary,
        vocabulary_hash=_vocabulary_hash(loaded.tokenizer),
        windows=windows.count,
        length=windows.length,
        first=windows.first,
        context=shape.context,
        stride=shape.stride,
    )


def _vocabulary_hash(tokenizer: Tokenizer) -> str:
    texts = (tokenizer.token_text(token) for token in range(tokenizer.vocab_size))
    return hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()
