"""How byte-pair models split text into words before merging, by the name the file gives."""

from __future__ import annotations

from typing import NamedTuple

from turbodflash_engine.errors import BadModel

_CONTRACTION = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"


def _modern(number: str) -> str:
    return (
        rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{number}"
        rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
    )


class Split(NamedTuple):
    """Regular expressions, applied in order to the pieces that the one before left.

    whole_words: a piece that is itself a token is taken whole, without merging.
    """

    patterns: tuple[str, ...]
    whole_words: bool = False


_LLAMA3 = Split((_modern(r"\p{N}{1,3}"),), whole_words=True)
_DEFAULT = Split((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"))
_SPLITS = {
    "default": _DEFAULT,
    "gpt-2": Split((_GPT2,)),
    "llama-bpe": _LLAMA3,
    "llama-v3": _LLAMA3,
    "llama3": _LLAMA3,
    "qwen2": Split((_modern(r"\p{N}"),)),
    "qwen35": Split(
        (
            rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
            rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}",
        )
    ),
    "smollm": Split((r"\p{N}", _GPT2)),
}


def split_of(pre: str) -> Split:
    """The split that `tokenizer.ggml.pre` names; an unknown name would change every prompt."""
    if pre not in _SPLITS:
        raise BadModel(
            f"the tokenizer splits words by {pre!r}, which is not supported",
            hint=f"supported are: {', '.join(sorted(_SPLITS))}",
        )
    return _SPLITS[pre]
