"""A GGUF model on disk, in one file or split over several, as metadata and tensors."""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from math import prod
from os import PathLike
from pathlib import Path
from threading import Lock
from types import MappingProxyType, TracebackType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from turbodflash_engine.errors import BadModel
from turbodflash_engine.gguf.cursor import AGAIN, quoted
from turbodflash_engine.gguf.header import Entry, read_header
from turbodflash_engine.gguf.mapping import map_file
from turbodflash_engine.gguf.splits import Split, check_part, check_total, other_parts
from turbodflash_engine.metadata import Metadata

RELEASED_BYTES = 16 << 20  # at once: each call to the system stops all threads for a moment


class Part:
    """One file of a model: its header, and its bytes mapped read-only."""

    def __init__(self, path: Path) -> None:
        self.path, self.buffer = path, map_file(path)
        try:
            self.header = read_header(self.buffer, str(path))
            self.split = Split.read(self.header.values, path)
        except BaseException:
            self.buffer.close()
            raise
        self._unneeded: list[tuple[int, int]] = []
        self._unneeded_bytes = 0
        self._lock = Lock()

    def release(self, start: int, stop: int) -> None:
        """Bytes start..stop-1 will not be read again soon: the system may take their memory back.

        It is told of many at once; they are read again when touched.
        """
        if not hasattr(mmap, "MADV_DONTNEED"):
            return  # a system without the call keeps them until it needs the memory
        with self._lock:
            self._unneeded.append((start, stop))
            self._unneeded_bytes += stop - start
            if self._unneeded_bytes < RELEASED_BYTES:
                return
            unneeded, self._unneeded, self._unneeded_bytes = self._unneeded, [], 0
        for first, last in _joined(unneeded):
            first -= first % mmap.PAGESIZE
            self.buffer.madvise(mmap.MADV_DONTNEED, first, last - first)

    def close(self) -> None:
        # An array that still views the mapping keeps it alive, and closing then is refused.
        with suppress(BufferError):
            self.buffer.close()


class TensorInfo(NamedTuple):
    """One tensor, its bytes left in the file until they are asked for.

    type: such as "Q4_K"; type_id: the number of it in the file.
    shape: in GGUF's order, the row length (ne0) first.
    offset: of the first byte in `part`, the file of a split model that holds it.
    """

    name: str
    type: str
    type_id: int
    shape: tuple[int, ...]
    offset: int
    nbytes: int
    row_bytes: int
    part: Part

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def rows(self) -> int:
        return prod(self.shape[1:])

    @property
    def data(self) -> NDArray[np.uint8]:
        """uint8 [rows, row_bytes], a read-only view of the file: read from disk when touched."""
        flat = np.frombuffer(self.part.buffer, np.uint8, self.nbytes, self.offset)
        return flat.reshape(self.rows, self.row_bytes)

    def release(self, start: int, stop: int) -> None:
        """Let the system take back the memory of these rows; they are read again when touched."""
        if stop > start:
            first, last = (self.offset + row * self.row_bytes for row in (start, stop))
            self.part.release(first, last)


class GgufFile:
    """A model that was opened. Use it in a `with`, or close it; its arrays may outlive that.

    metadata: of the first part. tensors: of all parts, in file order. nbytes: of all files.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        first = parts[0]
        self.parts = tuple(parts)
        self.path, self.version = first.path, first.header.version
        self.metadata = Metadata(first.header.values, str(first.path))
        self.tensors: Mapping[str, TensorInfo] = MappingProxyType(_tensors(parts))
        self.nbytes = sum(len(part.buffer) for part in parts)

    def close(self) -> None:
        """Let go of the files. Closing twice is fine."""
        _close(self.parts)

    def __enter__(self) -> GgufFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def open_gguf(path: str | PathLike[str]) -> GgufFile:
    """Open a model by its only, or first, file; the other parts of a split model are found.

    Every header is checked before it is believed. Raises BadUsage for a path that cannot be read
    and BadModel for a file that cannot be used.
    """
    parts = [Part(Path(path))]
    try:
        first = parts[0].split
        for number, other in enumerate(other_parts(parts[0].path, first), 1):
            parts.append(Part(other))
            check_part(other, parts[-1].split, number, first)
        opened = GgufFile(parts)
        check_total(opened.path, first, len(opened.tensors))
    except BaseException:
        _close(parts)
        raise
    return opened


def _joined(ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Ranges in order; those with less than a page between them are one."""
    ordered = sorted(ranges)
    first, last = ordered[0]
    for start, stop in ordered[1:]:
        if start - last >= mmap.PAGESIZE:
            yield first, last
            first = start
        last = max(last, stop)
    yield first, last


def _close(parts: Sequence[Part]) -> None:
    for part in parts:
        part.close()


def _tensors(parts: Sequence[Part]) -> dict[str, TensorInfo]:
    tensors: dict[str, TensorInfo] = {}
    for part in parts:
        for entry in part.header.entries:
            if entry.name in tensors:
                raise BadModel(
                    f"'{part.path}' has the tensor {quoted(entry.name)}, "
                    f"which is also in '{tensors[entry.name].part.path}'",
                    hint=f"the parts do not belong together: {AGAIN}",
                )
            tensors[entry.name] = _info(entry, part)
    return tensors


def _info(entry: Entry, part: Part) -> TensorInfo:
    return TensorInfo(
        name=entry.name,
        type=entry.type.name,
        type_id=entry.type_id,
        shape=entry.shape,
        offset=entry.start,
        nbytes=entry.nbytes,
        row_bytes=entry.row_bytes,
        part=part,
    )
