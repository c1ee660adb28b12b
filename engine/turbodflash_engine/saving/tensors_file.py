"""Named arrays in one file, laid out as safetensors has them.

```
u64 bytes of the header      little-endian, as all numbers
header                       JSON: name -> {"dtype", "shape", "data_offsets": [start, end]}, and
                             "__metadata__": name -> text
data                         the arrays, one after the other without a gap
```

The last array is the CRC-32 of all data before it. A file is read with suspicion.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from math import prod
from pathlib import Path
from struct import Struct
from typing import Any, BinaryIO
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from turbodflash_engine.cache.pieces import Pieces
from turbodflash_engine.errors import TurbodflashError

METADATA, CHECKSUM = "__metadata__", "checksum"
MOST_HEADER = 1 << 24
_DTYPES = {"U8": "u1", "I32": "<i4", "F32": "<f4", "U32": "<u4"}
_LENGTH = Struct("<Q")
_AT_ONCE = 1 << 24
_MOST = 1 << 48


class Unreadable(Exception):
    """Why a file is not one of these; continues "the file ..."."""


def write_tensors(path: Path, metadata: Mapping[str, str], pieces: Pieces) -> None:
    """The file is the old one or the new one whole, whatever happens meanwhile.

    Raises TurbodflashError when it cannot be written.
    """
    beside = path.with_name(f".{path.name}.part")
    try:
        try:
            with beside.open("wb") as out:
                _write(out, metadata, pieces)
                out.flush()
                os.fsync(out.fileno())
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise TurbodflashError(
            f"cannot write '{path}': {error.strerror}", hint="name a place with enough room"
        ) from error


def read_tensors(path: Path) -> tuple[dict[str, str], dict[str, NDArray[Any]]]:
    """Metadata and arrays, which are read from disk when they are touched.

    Raises Unreadable, or OSError.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        opening = file.read(_LENGTH.size)
        if len(opening) < _LENGTH.size:
            raise Unreadable(f"has {size} bytes")
        (length,) = _LENGTH.unpack(opening)
        if length > min(MOST_HEADER, size - _LENGTH.size):
            raise Unreadable(f"has {size:,} bytes and claims a header of {length:,}")
        metadata, places = _header(file.read(length))
    start = _LENGTH.size + length
    _check_places(places, size - start)
    data = np.memmap(path, np.uint8, "r", start) if size > start else np.empty(0, np.uint8)
    arrays = {
        name: data[first:last].view(dtype).reshape(shape)
        for name, (dtype, shape, first, last) in places.items()
    }
    return metadata, arrays


def check_whole(arrays: dict[str, NDArray[Any]]) -> None:
    """Raises Unreadable when the data is not what was written."""
    checksum = arrays.pop(CHECKSUM, None)
    found = 0
    for array in arrays.values():
        found = _crc(array, found)
    if checksum is None or checksum.tolist() != [found]:
        raise Unreadable("is damaged: its checksum does not fit")


_Places = dict[str, tuple[str, tuple[int, ...], int, int]]


def _write(out: BinaryIO, metadata: Mapping[str, str], pieces: Pieces) -> None:
    header: dict[str, Any] = {METADATA: dict(metadata)}
    at = 0
    shapes = {name: (piece.dtype, piece.shape) for name, piece in pieces.items()}
    for name, (dtype, shape) in (shapes | {CHECKSUM: ("U32", (1,))}).items():
        end = at + prod(shape) * np.dtype(_DTYPES[dtype]).itemsize
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # so that arrays begin where numbers may
    out.write(_LENGTH.pack(len(text)) + text)
    checksum = 0
    for piece in pieces.values():
        array = np.ascontiguousarray(piece.read(), _DTYPES[piece.dtype])
        checksum = _crc(array, checksum)
        out.write(array.tobytes())
    out.write(np.array([checksum], "<u4").tobytes())


def _header(text: bytes) -> tuple[dict[str, str], _Places]:
    try:
        header = json.loads(text)
        metadata = header.pop(METADATA, {})
        if not all(type(each) is str for each in metadata.values()):
            raise TypeError
        places = {name: _place(**entry) for name, entry in header.items()}
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        raise Unreadable("is not of the safetensors layout") from None
    return metadata, places


def _place(
    dtype: str, shape: list[int], data_offsets: list[int]
) -> tuple[str, tuple[int, ...], int, int]:
    first, last = data_offsets
    if any(type(each) is not int or not 0 <= each <= _MOST for each in (first, last, *shape)):
        raise ValueError
    return _DTYPES[dtype], tuple(shape), first, last


def _check_places(places: _Places, size: int) -> None:
    at = 0
    for name, (dtype, shape, first, last) in places.items():
        itemsize = np.dtype(dtype).itemsize
        if first != at or last - first != prod(shape) * itemsize or first % itemsize:
            raise Unreadable(f"is damaged: {name!r} does not lie where it should")
        at = last
    if at != size:
        raise Unreadable(f"is incomplete: {at:,} bytes of data are needed, it has {size:,}")


def _crc(array: NDArray[Any], before: int) -> int:
    flat = array.reshape(-1).view(np.uint8)
    for start in range(0, len(flat), _AT_ONCE):
        before = crc32(flat[start : start + _AT_ONCE].data, before)
    return before
