"""A file of what a model said of a text, for others to be measured against.

```
"TDFLBASE", u32 version, u32 bytes of the header      all numbers little-endian
header                                                 JSON, see `Header`
i32[windows, length]                                   the tokens
per window: u64 bytes, u32 CRC-32 of them, then
    f32[n] nll, u32[n] tops, f32[n] tails, u32[n] counts, u8[n, ceil(vocabulary / 8)] present,
    u16[sum of counts] codes                           n = length - 1 - first; see `Likely`
"TDFLDONE"
```
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from struct import Struct
from typing import Any, BinaryIO
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from turbodflash_engine.errors import BadUsage, TurbodflashError
from turbodflash_engine.perplexity.likely import Likely
from turbodflash_engine.perplexity.windows import Windows

MAGIC, DONE = b"TDFLBASE", b"TDFLDONE"
VERSION = 1
_OPENING, _BLOCK = Struct("<8sII"), Struct("<QI")
_OTHERS = {b"_logits_": "a base file of llama-perplexity", b"GGUF": "a GGUF file"}
_MOST_HEADER = 2**20


@dataclass(frozen=True, slots=True)
class Header:
    """What a base file says of itself.

    model, cache: for a person. vocabulary: logits of a row. vocabulary_hash: of the tokens' texts.
    """

    model: str
    cache: str
    vocabulary: int
    vocabulary_hash: str
    windows: int
    length: int
    first: int
    context: int
    stride: int


class BaseWriter:
    """Takes a window's distributions after the other."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out

    def add(self, likely: Likely) -> None:
        """The next window."""
        block = b"".join(_little(each).tobytes() for each in likely)
        self._out.write(_BLOCK.pack(len(block), crc32(block)))
        self._out.write(block)


@contextmanager
def write_base(path: Path, header: Header, windows: Windows) -> Iterator[BaseWriter]:
    """A file that is there only once it is whole."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    text = json.dumps(asdict(header)).encode()
    try:
        with beside.open("wb") as out:
            out.write(_OPENING.pack(MAGIC, VERSION, len(text)) + text)
            out.write(_little(windows.tokens).tobytes())
            yield BaseWriter(out)
            out.write(DONE)
        beside.replace(path)
    except OSError as error:
        raise TurbodflashError(
            f"cannot write '{path}': {error.strerror}", hint="name a place with enough room"
        ) from error
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def open_base(path: Path) -> Iterator[BaseFile]:
    """Raises BadUsage for whatever is no whole base file."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise BadUsage(f"cannot read the base file '{path}': {error.strerror}") from error
    with file:
        yield BaseFile(file, path)


class BaseFile:
    """An opened file: its header, its windows, and the distributions of one window at a time."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._in, self._path = file, path
        self._size = os.fstat(file.fileno()).st_size
        self.header = self._header()
        tokens = self._array("<i4", self.header.windows, self.header.length)
        self.windows = Windows(tokens.astype(np.int32), self.header.first)
        self._check_whole()

    def next(self) -> Likely:
        """The distributions of the next window."""
        nbytes, checksum = _BLOCK.unpack(self._bytes(_BLOCK.size))
        block = self._bytes(nbytes)
        if crc32(block) != checksum:
            raise self._damaged("its checksum does not fit")
        return self._likely(block)

    def _header(self) -> Header:
        start = self._in.read(_OPENING.size)
        if start[: len(MAGIC)] != MAGIC or len(start) < _OPENING.size:
            found = next((what for mark, what in _OTHERS.items() if start.startswith(mark)), "")
            raise self._unusable(f"is {found or 'not a base file'}")
        _, version, nbytes = _OPENING.unpack(start)
        if version != VERSION:
            raise self._unusable(f"has version {version}; version {VERSION} is read")
        if nbytes > _MOST_HEADER:
            raise self._damaged(f"its header claims {nbytes:,} bytes")
        try:
            header = _checked(json.loads(self._bytes(nbytes)))
        except (ValueError, TypeError, RecursionError) as error:
            raise self._damaged("its header cannot be read") from error
        return header

    def _check_whole(self) -> None:
        here = self._in.tell()
        self._in.seek(max(self._size - len(DONE), 0))
        if self._in.read() != DONE:
            raise self._unusable(f"is incomplete: it ends after {self._size:,} bytes")
        self._in.seek(here)

    def _likely(self, block: bytes) -> Likely:
        rows = self.windows.scored
        width = -(-self.header.vocabulary // 8)
        fixed = rows * (16 + width)
        if len(block) < fixed or (len(block) - fixed) % 2:
            raise self._damaged("a window is too short")
        kinds = ("<f4", "<u4", "<f4", "<u4")
        nll, tops, tails, counts = (
            np.frombuffer(block, kind, rows, 4 * rows * at) for at, kind in enumerate(kinds)
        )
        present = np.frombuffer(block, "u1", rows * width, 16 * rows).reshape(rows, width)
        codes = np.frombuffer(block, "<u2", offset=fixed)
        likely = Likely(nll, tops, tails, counts, present, codes)
        self._check(likely)
        return likely

    def _check(self, likely: Likely) -> None:
        vocabulary = self.header.vocabulary
        present = np.unpackbits(likely.present, axis=1)
        sound = (
            (present.sum(axis=1) == likely.counts).all()
            and not present[:, vocabulary:].any()
            and int(likely.counts.sum()) == len(likely.codes)
            and (likely.counts > 0).all()
            and (likely.tops < vocabulary).all()
            and ((likely.tails >= 0) & (likely.tails < 1)).all()
            and np.isfinite(likely.nll).all()
        )
        if not sound:
            raise self._damaged("a window contradicts itself")

    def _array(self, kind: str, *shape: int) -> NDArray[Any]:
        nbytes = int(np.prod(shape, dtype=object)) * np.dtype(kind).itemsize
        return np.frombuffer(self._bytes(nbytes), kind).reshape(shape)

    def _bytes(self, count: int) -> bytes:
        here = self._in.tell()
        if count > self._size - here:
            raise self._unusable(
                f"is incomplete: {here + count:,} bytes are needed, it has {self._size:,}"
            )
        return self._in.read(count)

    def _unusable(self, why: str) -> BadUsage:
        return BadUsage(f"'{self._path}' {why}", hint="write it again, without --kl-divergence")

    def _damaged(self, why: str) -> BadUsage:
        return self._unusable(f"is damaged: {why}")


def _checked(found: Any) -> Header:
    """The header of parsed JSON; ValueError or TypeError when it is none."""
    header = Header(**found)
    kinds = {each.name: str if each.type == "str" else int for each in fields(Header)}
    if any(type(getattr(header, name)) is not kind for name, kind in kinds.items()):
        raise TypeError("a value is of the wrong kind")
    if min(header.windows, header.first + 1, header.vocabulary, header.stride + 1) < 1:
        raise ValueError("a number is too small")
    if header.length - 1 <= header.first:
        raise ValueError("no row is scored")
    return header


def _little(array: NDArray[Any]) -> NDArray[Any]:
    return array.astype(array.dtype.newbyteorder("<"), copy=False)
