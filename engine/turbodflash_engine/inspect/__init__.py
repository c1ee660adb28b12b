"""What a model file holds, without loading it, and what would keep it from being loaded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any

from turbodflash_engine.gguf import TensorInfo, open_gguf
from turbodflash_engine.info import FILE_TYPES
from turbodflash_engine.inspect.layers import LayerSummary, active_parameters, layers_of
from turbodflash_engine.inspect.trial import try_to_read
from turbodflash_engine.metadata import ARCHITECTURE, Metadata, describe

__all__ = ["Inspection", "LayerSummary", "TensorSummary", "TypeSummary", "inspect_file"]

LONGEST_LIST = 8
_TELLS_NOTHING = ("general.", "split.", "quantize.", "tokenizer.chat_template")
"""Beginnings of keys that describe a file, or that others than a model's loader read."""


@dataclass(frozen=True, slots=True)
class TensorSummary:
    """shape: in GGUF's order, the row length first."""

    name: str
    type: str
    shape: tuple[int, ...]
    nbytes: int


@dataclass(frozen=True, slots=True)
class TypeSummary:
    """All tensors of one type; elements: numbers in them."""

    type: str
    tensors: int
    elements: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class SpecialToken:
    """role: such as "bos"; text: "" where the vocabulary has no such id."""

    role: str
    id: int
    text: str


@dataclass(frozen=True, slots=True)
class TokenizerSummary:
    """model: the kind of tokenizer; pre: how text is split before; "" where the file is silent."""

    model: str
    pre: str
    tokens: int
    merges: int
    special: tuple[SpecialToken, ...]


@dataclass(frozen=True, slots=True)
class Inspection:
    """A model file, in plain data.

    parts: names of its files. file_bytes: of all of them. parameters: numbers in its tensors.
    active: those that a token is computed with. drafts: as what, such as "draft-dflash", a file
    that is no model by itself does; else "". layers: one for each make.
    types: the largest share first. metadata: plain values; long arrays are described in words.
    unread: keys that this version takes no notice of. problems: why it would not load.
    """

    path: str
    parts: tuple[str, ...]
    version: int
    architecture: str
    name: str
    file_type: str
    file_bytes: int
    parameters: int
    active: int
    drafts: str
    layers: tuple[LayerSummary, ...]
    types: tuple[TypeSummary, ...]
    tensors: tuple[TensorSummary, ...]
    tokenizer: TokenizerSummary | None
    chat_template: str | None
    metadata: dict[str, Any]
    unread: tuple[str, ...]
    problems: tuple[str, ...]


def inspect_file(path: str | PathLike[str]) -> Inspection:
    """Read the headers of a model. Raises BadUsage or BadModel where even that cannot be done."""
    with open_gguf(path) as file:
        meta = file.metadata
        trial = try_to_read(file)
        layers = layers_of(file.tensors, meta, trial.windows)
        unread = tuple(key for key in meta.unread() if not key.startswith(_TELLS_NOTHING))
        tensors = file.tensors
        return Inspection(
            path=str(file.path),
            parts=tuple(part.path.name for part in file.parts),
            version=file.version,
            architecture=meta.get(ARCHITECTURE, ""),
            name=meta.get("general.name", "") or Path(path).stem,
            file_type=_file_type(meta),
            file_bytes=file.nbytes,
            parameters=sum(tensor.elements for tensor in tensors.values()),
            active=active_parameters(tensors, layers),
            drafts=trial.drafts,
            layers=layers,
            types=_types(tensors.values()),
            tensors=tuple(
                TensorSummary(t.name, t.type, t.shape, t.nbytes) for t in tensors.values()
            ),
            tokenizer=_tokenizer(meta),
            chat_template=meta.get("tokenizer.chat_template", None, str),
            metadata={key: _abbreviated(value) for key, value in meta.items()},
            unread=unread,
            problems=trial.problems,
        )


def _file_type(meta: Metadata) -> str:
    number = meta.get("general.file_type", None, int)
    return "" if number is None else FILE_TYPES.get(number, f"file type {number}")


def _types(tensors: Iterable[TensorInfo]) -> tuple[TypeSummary, ...]:
    groups: dict[str, list[TensorInfo]] = {}
    for tensor in tensors:
        groups.setdefault(tensor.type, []).append(tensor)
    summaries = [
        TypeSummary(
            type=name,
            tensors=len(group),
            elements=sum(tensor.elements for tensor in group),
            nbytes=sum(tensor.nbytes for tensor in group),
        )
        for name, group in groups.items()
    ]
    return tuple(sorted(summaries, key=lambda summary: (-summary.nbytes, summary.type)))


def _tokenizer(meta: Metadata) -> TokenizerSummary | None:
    ours = meta.under("tokenizer.ggml")
    if "model" not in ours and "tokens" not in ours:
        return None
    tokens: list[str] = ours.get("tokens", [])
    return TokenizerSummary(
        model=ours.get("model", ""),
        pre=ours.get("pre", ""),
        tokens=len(tokens),
        merges=len(dict(ours.items()).get("tokenizer.ggml.merges", ())),
        special=tuple(_special_tokens(ours, tokens)),
    )


def _special_tokens(ours: Metadata, tokens: list[str]) -> Iterable[SpecialToken]:
    ending = "_token_id"
    for key, value in ours.items():
        if key.endswith(ending) and isinstance(value, int):
            role = key.removeprefix(ours.prefix).removesuffix(ending)
            yield SpecialToken(role, value, tokens[value] if 0 <= value < len(tokens) else "")


def _abbreviated(value: Any) -> Any:
    """Plain values as they are, short arrays as lists, long ones in words with a beginning."""
    if isinstance(value, (bool, int, float, str)):
        return value
    beginning = [
        item if isinstance(item, str) else item.item() for item in islice(value, LONGEST_LIST)
    ]
    if len(value) <= LONGEST_LIST:
        return beginning
    return f"{describe(value)}: {', '.join(map(repr, beginning))}, …"
