"""What a model file holds, without loading it, and what would keep it from being loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any

from turbodflash_engine import plugins
from turbodflash_engine.errors import BadModel, TurbodflashError, Unknown
from turbodflash_engine.gguf import GgufFile, TensorInfo, open_gguf
from turbodflash_engine.info import FILE_TYPES
from turbodflash_engine.layers.rope import RopeOverrides
from turbodflash_engine.metadata import ARCHITECTURE, Metadata, describe
from turbodflash_engine.quant import weight_type
from turbodflash_engine.tokenizer.vocabulary import read_vocabulary

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
        problems = _problems(file)
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
            types=_types(tensors.values()),
            tensors=tuple(
                TensorSummary(t.name, t.type, t.shape, t.nbytes) for t in tensors.values()
            ),
            tokenizer=_tokenizer(meta),
            chat_template=meta.get("tokenizer.chat_template", None, str),
            metadata={key: _abbreviated(value) for key, value in meta.items()},
            unread=unread,
            problems=problems,
        )


def _problems(file: GgufFile) -> tuple[str, ...]:
    """What the loader would say, each reader once. What they ask for becomes known to be read."""
    meta = file.metadata
    readers: list[Callable[[], object]] = [
        partial(_read_architecture, meta),
        partial(read_vocabulary, meta),
    ]
    readers += [partial(weight_type, t.type, t.name) for t in _one_of_each_type(file.tensors)]
    return tuple(problem for problem in map(_complaint, readers) if problem)


def _complaint(read: Callable[[], object]) -> str:
    try:
        read()
    except TurbodflashError as error:
        return str(error)
    return ""


def _read_architecture(meta: Metadata) -> None:
    name = meta.architecture
    try:
        architecture = plugins.find("models", name)
    except Unknown:
        raise BadModel(f"architecture {name!r} is not supported") from None
    architecture.read(meta, RopeOverrides())


def _one_of_each_type(tensors: Mapping[str, TensorInfo]) -> list[TensorInfo]:
    return list({tensor.type: tensor for tensor in tensors.values()}.values())


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
