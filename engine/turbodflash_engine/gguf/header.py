"""The header of one GGUF file: what it says about itself, checked against its size."""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

from turbodflash_engine.gguf.cursor import AGAIN, Cursor, quoted
from turbodflash_engine.gguf.foreign import not_gguf
from turbodflash_engine.gguf.ggml_types import GGML_TYPES, GgmlType

VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MOST_DIMS = 4
_LEAST_KEY_BYTES = 8 + 4 + 1
_LEAST_TENSOR_BYTES = 8 + 4 + 8 + 4 + 8


class Entry(NamedTuple):
    """One tensor as the header lists it. shape: ne0 (the row length) first. start: from byte 0."""

    name: str
    type_id: int
    type: GgmlType
    shape: tuple[int, ...]
    start: int

    @property
    def row_bytes(self) -> int:
        return self.shape[0] // self.type.block * self.type.block_bytes

    @property
    def nbytes(self) -> int:
        return self.row_bytes * prod(self.shape[1:])


class Header(NamedTuple):
    """data_start: where the first tensor may begin."""

    version: int
    values: dict[str, object]
    entries: list[Entry]
    data_start: int


def read_header(buffer: Any, name: str) -> Header:
    """The header in `buffer` (bytes or mmap of a whole file). Raises BadModel, naming the file.

    Afterwards every tensor is known to lie inside the file, aligned and apart from all others.
    """
    cursor = Cursor(buffer, name)
    version = _version(cursor)
    tensor_count = cursor.count("the number of tensors", _LEAST_TENSOR_BYTES)
    key_count = cursor.count("the number of metadata keys", _LEAST_KEY_BYTES)
    values = _values(cursor, key_count)
    alignment = _alignment(cursor, values)
    listed = _listed(cursor, tensor_count)
    data_start = -(-cursor.place // alignment) * alignment
    entries = [_placed(cursor, entry, data_start, alignment) for entry in listed]
    _check_apart(cursor, entries)
    return Header(version, values, entries, data_start)


def _version(cursor: Cursor) -> int:
    start = bytes(cursor.buffer[:512])
    if len(start) < 4 and b"GGUF".startswith(start):
        raise cursor.wrong(f"is incomplete: it has {len(start)} bytes", hint=AGAIN)
    if start[:4] != b"GGUF":
        raise not_gguf(cursor.name, start)
    cursor.place = 4
    version: int = cursor.number("I", "the version")
    if version in VERSIONS:
        return version
    if version and version & 0xFFFF == 0:
        raise cursor.wrong(
            "is a big-endian GGUF file; little-endian ones are supported",
            hint="get the little-endian file, or convert the model again",
        )
    raise cursor.wrong(
        f"has GGUF version {version}; versions 2 and 3 are supported",
        hint="get a newer file of this model, or convert it again"
        if version < 2
        else "this file is newer than this program: update turbodflash",
    )


def _values(cursor: Cursor, count: int) -> dict[str, object]:
    values: dict[str, object] = {}
    for index in range(count):
        place = cursor.place
        key = cursor.string(f"the name of metadata key {index + 1} of {count}")
        if key in values:
            raise cursor.wrong(f"has the metadata key {quoted(key)} twice, again at byte {place:,}")
        values[key] = cursor.value(f"the metadata key {quoted(key)}")
    return values


def _alignment(cursor: Cursor, values: dict[str, object]) -> int:
    alignment = values.get("general.alignment", DEFAULT_ALIGNMENT)
    if isinstance(alignment, int) and alignment > 0 and alignment & (alignment - 1) == 0:
        return alignment
    raise cursor.wrong(f"has general.alignment {alignment!r}, expected a power of two")


def _listed(cursor: Cursor, count: int) -> list[Entry]:
    names: set[str] = set()
    entries = []
    for index in range(count):
        place = cursor.place
        name = cursor.string(f"the name of tensor {index + 1} of {count}")
        if name in names:
            raise cursor.wrong(f"has the tensor {quoted(name)} twice, again at byte {place:,}")
        names.add(name)
        entries.append(_entry(cursor, name))
    return entries


def _entry(cursor: Cursor, name: str) -> Entry:
    what = f"tensor {quoted(name)}"
    dims = cursor.number("I", f"the dimensions of {what}")
    if not 1 <= dims <= MOST_DIMS:
        raise cursor.wrong(f"has {dims} dimensions for {what}, expected 1 to {MOST_DIMS}")
    shape = tuple(cursor.number("Q", f"the shape of {what}") for _ in range(dims))
    type_id = cursor.number("I", f"the type of {what}")
    offset = cursor.number("Q", f"the offset of {what}")
    if type_id not in GGML_TYPES:
        raise cursor.wrong(
            f"stores {what} in type {type_id}, which is unknown",
            hint="get the model in another quantization, or update turbodflash",
        )
    kind = GGML_TYPES[type_id]
    if 0 in shape or shape[0] % kind.block:
        raise cursor.wrong(
            f"gives {what} the shape {list(shape)}; every size must be at least 1 and "
            f"the first a multiple of {kind.block} for {kind.name}"
        )
    return Entry(name, type_id, kind, shape, offset)


def _placed(cursor: Cursor, entry: Entry, data_start: int, alignment: int) -> Entry:
    """The entry with its start counted from byte 0 of the file."""
    if entry.start % alignment:
        raise cursor.wrong(
            f"puts tensor {quoted(entry.name)} at offset {entry.start:,}, "
            f"not a multiple of its alignment {alignment}"
        )
    start = data_start + entry.start
    end = start + entry.nbytes
    if end > cursor.size:
        raise cursor.wrong(
            f"is incomplete: tensor {quoted(entry.name)} ends at byte {end:,} "
            f"but the file has {cursor.size:,}",
            hint=AGAIN,
        )
    return Entry(entry.name, entry.type_id, entry.type, entry.shape, start)


def _check_apart(cursor: Cursor, entries: list[Entry]) -> None:
    ordered = sorted(entries, key=lambda entry: entry.start)
    for left, right in pairwise(ordered):
        if left.start + left.nbytes > right.start:
            raise cursor.wrong(
                f"has tensors that overlap: {quoted(left.name)} ends at byte "
                f"{left.start + left.nbytes:,} and {quoted(right.name)} starts at {right.start:,}"
            )
