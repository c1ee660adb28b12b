"""Reading forward through the header of a file that may lie about everything."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from turbodflash_engine.errors import BadModel
from turbodflash_engine.gguf.strings import LENGTH_BYTES, Strings, Truncated, locate

AGAIN = "download the file again"

SCALARS = {  # value type id -> how struct and numpy spell it
    0: ("B", "u1"),
    1: ("b", "i1"),
    2: ("H", "<u2"),
    3: ("h", "<i2"),
    4: ("I", "<u4"),
    5: ("i", "<i4"),
    6: ("f", "<f4"),
    7: ("B", "?"),
    10: ("Q", "<u8"),
    11: ("q", "<i8"),
    12: ("d", "<f8"),
}
_STRUCTS = {spelling: struct.Struct(f"<{spelling}") for spelling, _ in SCALARS.values()}
BOOL, STRING, ARRAY = 7, 8, 9


def quoted(name: str) -> str:
    """A name out of a file, fit for a sentence: short, and without control characters."""
    return repr(name if len(name) <= 80 else f"{name[:80]}…")


class Cursor:
    """A place in the bytes of one file; each read moves it on, or raises BadModel.

    buffer: bytes or an mmap. name: the file as the user knows it. `what` in every read names what
    is being read, for the error.
    """

    def __init__(self, buffer: Any, name: str, place: int = 0) -> None:
        self.buffer, self.name, self.place = buffer, name, place
        self.size = len(buffer)

    def wrong(self, problem: str, hint: str = f"the file is damaged: {AGAIN}") -> BadModel:
        """The error of this file."""
        return BadModel(f"'{self.name}' {problem}", hint)

    def number(self, spelling: str, what: str) -> Any:
        """One little-endian number, spelled as struct does."""
        form = _STRUCTS[spelling]
        self._claim(form.size, what)
        (value,) = form.unpack_from(self.buffer, self.place)
        self.place += form.size
        return value

    def count(self, what: str, least_bytes: int) -> int:
        """How many of something follow (u64), believed only if that many could be in the file."""
        place = self.place
        number: int = self.number("Q", what)
        if number > (self.size - self.place) // least_bytes:
            raise self.wrong(
                f"claims {number:,} for {what} at byte {place:,}, "
                f"more than its {self.size:,} bytes can hold"
            )
        return number

    def string(self, what: str) -> str:
        """A length (u64) and that many bytes of UTF-8."""
        length = self.count(f"the length of {what}", 1)
        start, self.place = self.place, self.place + length
        try:
            return str(self.buffer[start : self.place], "utf-8")
        except UnicodeDecodeError as error:
            raise self.wrong(
                f"has {what} at byte {start:,} that is not UTF-8 ({error.reason})"
            ) from None

    def value(self, what: str) -> object:
        """A metadata value with its type: int, float, bool, str, numpy array or Strings."""
        place = self.place
        kind = self.number("I", f"the type of {what}")
        if kind == ARRAY:
            return self._array(what)
        if kind == STRING:
            return self.string(what)
        return self._scalar(kind, what, place)

    def _scalar(self, kind: int, what: str, place: int) -> object:
        if kind not in SCALARS:
            raise self._unknown(kind, what, place)
        value: object = self.number(SCALARS[kind][0], what)
        if kind != BOOL:
            return value
        if value not in (0, 1):
            raise self.wrong(f"has {value} as {what} at byte {self.place - 1:,}, expected 0 or 1")
        return bool(value)

    def _array(self, what: str) -> object:
        place = self.place
        kind = self.number("I", f"the element type of {what}")
        if kind == ARRAY:
            raise self.wrong(
                f"has an array of arrays as {what} at byte {place:,}, which GGUF readers refuse"
            )
        if kind == STRING:
            return self._strings(what)
        if kind not in SCALARS:
            raise self._unknown(kind, what, place)
        return self._numbers(kind, what)

    def _numbers(self, kind: int, what: str) -> object:
        dtype = np.dtype(SCALARS[kind][1])
        count = self.count(f"the length of {what}", dtype.itemsize)
        start, self.place = self.place, self.place + count * dtype.itemsize
        values = np.frombuffer(self.buffer[start : self.place], dtype)
        if kind == BOOL and values.view(np.uint8).max(initial=0) > 1:
            raise self.wrong(f"has values other than 0 and 1 in {what} at byte {start:,}")
        return values

    def _strings(self, what: str) -> Strings:
        count = self.count(f"the length of {what}", LENGTH_BYTES)
        try:
            places = locate(self.buffer, self.place, count)
        except Truncated as end:
            raise self.wrong(
                f"is incomplete: string {end.index:,} of {what} at byte {end.offset:,} "
                f"claims {end.length:,} bytes but the file has {self.size:,}",
                hint=AGAIN,
            ) from None
        start, self.place = self.place, int(places[-1])
        return Strings(self.buffer[start : self.place], places, f"'{self.name}', {what}")

    def _claim(self, nbytes: int, what: str) -> None:
        if self.place + nbytes > self.size:
            raise self.wrong(
                f"is incomplete: the file ends at byte {self.size:,} inside {what}", hint=AGAIN
            )

    def _unknown(self, kind: int, what: str, place: int) -> BadModel:
        return self.wrong(f"has a value of unknown type {kind} as {what} at byte {place:,}")
