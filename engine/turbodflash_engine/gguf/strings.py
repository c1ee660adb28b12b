"""Arrays of strings: a vocabulary of 262,144 tokens must not cost a loop of 262,144 turns.

Each string is its length (u64) and its bytes. Where one ends is known only from where it starts, so
`locate` guesses and proves: in a window of the file every run of seven zero bytes marks a length
below 256; the guess holds as far as each string ends where the next one was guessed to start.
What is left (long strings, strings with zeros in them) is walked one by one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from turbodflash_engine.errors import BadModel

LENGTH_BYTES = 8
WINDOW = 256 << 10  # its arrays stay in a core's cache
PLAIN_STEPS = 4096  # about what one scan of a window costs
_LENGTH = struct.Struct("<Q")


class Truncated(Exception):
    """A string does not end inside the file. `index` is its place in the array."""

    def __init__(self, index: int, offset: int, length: int) -> None:
        super().__init__(index, offset, length)
        self.index, self.offset, self.length = index, offset, length


def locate(buffer: Any, start: int, count: int) -> NDArray[np.int64]:
    """Where the length fields of `count` strings stand, and after them the end: int64 [count + 1].

    `count` must have been checked against the size of the buffer. Raises `Truncated`.
    """
    places = np.empty(count + 1, np.int64)
    places[0], found = start, 0
    while found < count:
        run = _guess(buffer, int(places[found]), count - found)
        places[found + 1 : found + 1 + len(run)] = run
        found += len(run)
        if len(run) < PLAIN_STEPS:
            found = _walk(buffer, places, found, min(count, found + PLAIN_STEPS))
    return places


def _guess(buffer: Any, start: int, most: int) -> NDArray[np.int64]:
    """Ends of the strings from `start` on, as many as one window proves; perhaps none."""
    window = np.frombuffer(buffer[start : start + WINDOW], np.uint8)
    zero = window == 0
    two = zero[:-1] & zero[1:]
    four = two[:-2] & two[2:]
    fields = np.flatnonzero(four[1:-3] & four[4:])  # the 7 upper bytes of a length are zero
    if not len(fields) or fields[0] != 0:
        return np.empty(0, np.int64)
    ends = fields + LENGTH_BYTES + window[fields]
    wrong = np.flatnonzero(ends[:-1] != fields[1:])
    proven = int(wrong[0]) if len(wrong) else len(fields) - 1
    return start + ends[: min(proven, most)]


def _walk(buffer: Any, places: NDArray[np.int64], first: int, last: int) -> int:
    size, place = len(buffer), int(places[first])
    for index in range(first, last):
        if place + LENGTH_BYTES > size:
            raise Truncated(index, place, LENGTH_BYTES)
        (length,) = _LENGTH.unpack_from(buffer, place)
        if length > size - place - LENGTH_BYTES:
            raise Truncated(index, place, length)
        place += LENGTH_BYTES + length
        places[index + 1] = place
    return last


class Strings(Sequence[str]):
    """An array of strings in a file, decoded all together when one is first asked for.

    region: the bytes of the array without its count; places: as `locate` found them.
    where: names file and key for the error. Reading raises BadModel if a string is not UTF-8.
    """

    def __init__(self, region: bytes, places: NDArray[np.int64], where: str) -> None:
        self._count, self._where = len(places) - 1, where
        self._region, self._places = region, places - places[0]
        self._decoded: list[str] | None = None

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        return iter(self.decode())

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        return self.decode()[index]

    def decode(self) -> list[str]:
        """All strings. The list is kept: do not change it."""
        if self._decoded is None:
            together = _decode_together(self._region, self._places)
            self._decoded = self._one_by_one() if together is None else together
            self._region, self._places = b"", self._places[:0]
        return self._decoded

    def _one_by_one(self) -> list[str]:
        starts, ends = (self._places[:-1] + LENGTH_BYTES).tolist(), self._places[1:].tolist()
        decoded: list[str] = []
        try:
            for start, end in zip(starts, ends, strict=True):
                decoded.append(self._region[start:end].decode())
        except UnicodeDecodeError as error:
            raise BadModel(
                f"{self._where}: string {len(decoded):,} is not UTF-8 ({error.reason})",
                hint="the file is damaged: download it again",
            ) from None
        return decoded


def _decode_together(region: bytes, places: NDArray[np.int64]) -> list[str] | None:
    """Lengths overwritten with a mark that is in no string, everything is one text; else None."""
    marked = np.frombuffer(region, np.uint8).copy()
    longest = int(np.diff(places).max(initial=0))
    for byte in range((longest.bit_length() + 7) // 8):  # the others are zero as they are
        marked[places[:-1] + byte] = 0
    if np.count_nonzero(marked) != len(region) - LENGTH_BYTES * (len(places) - 1):
        return None  # a string with a zero in it: zeros are taken out below
    mark = _unused(marked.tobytes())
    if mark is None:
        return None
    marked[places[:-1]] = mark
    try:
        return marked.tobytes().translate(None, b"\0").decode().split(chr(mark))[1:]
    except UnicodeDecodeError:
        return None


def _unused(text: bytes) -> int | None:
    """A control character that is not in the text: one byte, to be split at quickly."""
    return next((byte for byte in range(1, 0x20) if byte not in text), None)
