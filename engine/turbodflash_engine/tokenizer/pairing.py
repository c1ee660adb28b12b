"""Whether two models speak the same tokens: then one can draft for the other."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from turbodflash_engine.errors import BadModel
from turbodflash_engine.metadata import Metadata
from turbodflash_engine.tokenizer.vocabulary import NOTHING, TokenType

_PADDING = re.compile(r"[<\[]\|?(pad|unused|reserved|dummy|placeholder)[\w ]*\|?[>\]]|", re.I)


def check_same_tokens(draft: Metadata, model: Metadata) -> None:
    """Raises BadModel at the first token that is not the same text in both files.

    Padding may differ from anything, and so may the draft's mask token, which nobody says. A draft
    without a vocabulary of its own has the model's.
    """
    own, other = _tokens(draft), _tokens(model)
    if not own or own == other:
        return
    no_matter_in_draft, no_matter_in_model = _padding(draft, own), _padding(model, other)
    for token in range(max(len(own), len(other))):
        said, meant = own[token : token + 1], other[token : token + 1]
        if said == meant or no_matter_in_draft(token) or no_matter_in_model(token):
            continue
        raise BadModel(
            f"'{draft.source}' and '{model.source}' have different tokens: token {token} is "
            f"{_described(said)} in the draft and {_described(meant)} in the model",
            hint="use a draft that was made for this model",
        )


def _tokens(meta: Metadata) -> list[str]:
    tokens: list[str] = []
    return meta.root.get("tokenizer.ggml.tokens", tokens)


def _padding(meta: Metadata, tokens: Sequence[str]) -> Callable[[int], bool]:
    """Whether a token is there and never said."""
    none: list[int] = []
    types = meta.root.get("tokenizer.ggml.token_type", none)
    mask = meta.root.get("tokenizer.ggml.mask_token_id", NOTHING)

    def never_said(token: int) -> bool:
        if token >= len(tokens):
            return False
        unused = token < len(types) and types[token] == TokenType.UNUSED
        return unused or token == mask or _PADDING.fullmatch(tokens[token]) is not None

    return never_said


def _described(text: Sequence[str]) -> str:
    return repr(text[0]) if text else "missing"
