"""The vocabulary of a model file: token texts, their types, and the ids that mean something.

Read once, at the door; everything behind it works on a frozen `Vocabulary`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, Protocol, TypeVar

from turbodflash_engine.errors import BadModel
from turbodflash_engine.tokenizer.eog import Ends, find_ends

T = TypeVar("T", str, int, float)

MODELS = ("gpt2", "llama", "gemma4")
"""Values of `tokenizer.ggml.model` that are supported."""

SPACE = "\u2581"
"""How llama and gemma4 vocabularies write a space."""

NOTHING = -1
"""The id of a special token that the model does not have."""

_DEFAULT_IDS: Mapping[str, Mapping[str, int]] = {
    "gpt2": {"bos": 11, "eos": 11},
    "llama": {"bos": 1, "eos": 2, "unknown": 0},
    "gemma4": {"bos": 2, "eos": 1, "unknown": 3, "padding": 0},
}
_ADDS_BOS = ("llama-bpe", "llama3", "llama-v3")


class TokenType(IntEnum):
    """What `tokenizer.ggml.token_type` says of a token."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


class Metadata(Protocol):
    """What is needed of a file's metadata: one value by its key, or the default."""

    def get(self, key: str, default: Any) -> Any: ...


class Vocabulary(NamedTuple):
    """Tokens by id, and what is said about them. Ids of absent special tokens are `NOTHING`.

    model: gpt2, llama (SentencePiece) or gemma4; pre: how the text of a gpt2 model is split.
    types: one `TokenType` a token, after the overrides that end-of-generation tokens get.
    scores: one a token, used by the llama model; merges: used by gpt2 and gemma4, best first.
    eog: tokens that end an answer.
    """

    model: str
    pre: str
    tokens: Sequence[str]
    ids: Mapping[str, int]
    types: bytes
    scores: Sequence[float]
    merges: Sequence[str]
    bos_id: int
    eos_id: int
    eot_id: int
    eom_id: int
    unknown_id: int
    padding_id: int
    mask_id: int
    eog: frozenset[int]
    suppress: tuple[int, ...]
    add_bos: bool
    add_eos: bool
    add_space_prefix: bool


def read_vocabulary(meta: Metadata) -> Vocabulary:
    """The vocabulary that `tokenizer.ggml.*` describes; BadModel where it contradicts itself."""
    model = _model(meta)
    pre = meta.get("tokenizer.ggml.pre", "") or "default"
    tokens = _list(meta, "tokens", str)
    if not tokens:
        raise BadModel(
            "metadata key 'tokenizer.ggml.tokens' is missing or empty: the file has no vocabulary",
            hint="a draft model is used together with its target; else fetch the file again",
        )
    ids = dict(zip(tokens, range(len(tokens)), strict=True))
    types = _types(meta, len(tokens))
    special = {name: _id(meta, model, name, len(tokens)) for name in _SPECIAL_KEYS}
    ends = find_ends(ids, special)
    _apply(ends, types)
    adds_bos = model == "llama" or (model == "gpt2" and pre in _ADDS_BOS)
    adds_bos = _flag(meta, "add_bos_token", adds_bos) or model == "gemma4"
    suppress = _list(meta, "suppress_tokens", int)
    return Vocabulary(
        model=model,
        pre=pre,
        tokens=tokens,
        ids=ids,
        types=bytes(types),
        scores=_scores(meta, len(tokens)),
        merges=_list(meta, "merges", str),
        bos_id=special["bos"],
        eos_id=special["eos"],
        eot_id=ends.eot_id,
        eom_id=ends.eom_id,
        unknown_id=special["unknown"],
        padding_id=special["padding"],
        mask_id=special["mask"],
        eog=ends.ids,
        suppress=tuple(id for id in suppress if 0 <= id < len(tokens)),
        add_bos=adds_bos,
        add_eos=_flag(meta, "add_eos_token", False),
        add_space_prefix=_flag(meta, "add_space_prefix", model == "llama") and model == "llama",
    )


_SPECIAL_KEYS = (
    "bos",
    "eos",
    "eot",
    "eom",
    "unknown",
    "padding",
    "mask",
    "fim_pad",
    "fim_rep",
    "fim_sep",
)


def _model(meta: Metadata) -> str:
    model: str = meta.get("tokenizer.ggml.model", "")
    if not model:
        raise BadModel(
            "metadata key 'tokenizer.ggml.model' is missing: the file has no tokenizer",
            hint="convert the model again together with its tokenizer",
        )
    if model not in MODELS:
        raise BadModel(
            f"tokenizer model {model!r} is not supported; supported are: {', '.join(MODELS)}"
        )
    return model


def _list(meta: Metadata, name: str, kind: type[T]) -> list[T]:
    """An array of one kind of element, as files have them; empty when the key is missing."""
    values: list[T] = meta.get(f"tokenizer.ggml.{name}", [])
    if values and not isinstance(values[0], kind):
        raise BadModel(
            f"metadata key 'tokenizer.ggml.{name}' is an array of {type(values[0]).__name__}, "
            f"expected {kind.__name__}",
            hint="the file is damaged: fetch or convert it again",
        )
    return values


def _flag(meta: Metadata, name: str, default: bool) -> bool:
    return bool(meta.get(f"tokenizer.ggml.{name}", default))


def _id(meta: Metadata, model: str, name: str, count: int) -> int:
    """The id under a key. Files write 2**32 - 1 and the like for "none": out of range is absent."""
    default = _DEFAULT_IDS[model].get(name, NOTHING)
    id: int = meta.get(f"tokenizer.ggml.{name}_token_id", default)
    return id if 0 <= id < count else NOTHING


def _types(meta: Metadata, count: int) -> bytearray:
    types = _list(meta, "token_type", int)
    if not types:
        return bytearray([TokenType.NORMAL]) * count
    _same_length("token_type", len(types), count)
    if min(types) < 0 or max(types) > max(TokenType):
        wrong = next(id for id, type in enumerate(types) if not 0 <= type <= max(TokenType))
        raise BadModel(
            f"the type of token {wrong} is {types[wrong]}; token types are 0 to {max(TokenType)}",
            hint="the file is damaged or of a newer format: fetch it again",
        )
    return bytearray(types)


def _scores(meta: Metadata, count: int) -> list[float]:
    scores = _list(meta, "scores", float) or [0.0] * count
    _same_length("scores", len(scores), count)
    return scores


def _same_length(name: str, length: int, count: int) -> None:
    if length != count:
        raise BadModel(
            f"metadata key 'tokenizer.ggml.{name}' has {length} entries "
            f"for a vocabulary of {count} tokens",
            hint="the file is damaged: fetch or convert it again",
        )


def _apply(ends: Ends, types: bytearray) -> None:
    for id in ends.control:
        types[id] = TokenType.CONTROL
    if ends.plain != NOTHING:
        types[ends.plain] = TokenType.NORMAL
