"""GGUF files written byte by byte, right or wrong, so that a test can say what is in them."""

from __future__ import annotations

import struct
from collections.abc import Iterable

import numpy as np

STRING, ARRAY = 8, 9
FORMS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}
U32, I32, F32, BOOL = 4, 5, 6, 7
ALIGNMENT = 32


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return u64(len(raw)) + raw


def scalar(key: str | bytes, kind: int, value: float) -> bytes:
    return text(key) + u32(kind) + struct.pack(f"<{FORMS[kind]}", value)


def string(key: str | bytes, value: str | bytes) -> bytes:
    return text(key) + u32(STRING) + text(value)


def strings(key: str, values: Iterable[str | bytes]) -> bytes:
    packed = [text(value) for value in values]
    return text(key) + u32(ARRAY) + u32(STRING) + u64(len(packed)) + b"".join(packed)


def numbers(key: str, kind: int, values: Iterable[float]) -> bytes:
    packed = [struct.pack(f"<{FORMS[kind]}", value) for value in values]
    return text(key) + u32(ARRAY) + u32(kind) + u64(len(packed)) + b"".join(packed)


def tensor(name: str | bytes, shape: Iterable[int], type_id: int = 0, offset: int = 0) -> bytes:
    sizes = list(shape)
    dims = u32(len(sizes)) + b"".join(map(u64, sizes))
    return text(name) + dims + u32(type_id) + u64(offset)


def gguf(
    keys: Iterable[bytes] = (),
    tensors: Iterable[bytes] = (),
    data: bytes = b"",
    version: int = 3,
    tensor_count: int | None = None,
    key_count: int | None = None,
    alignment: int = ALIGNMENT,
) -> bytes:
    """A whole file. Counts are those of what is given unless a test lies about them."""
    keys, tensors = list(keys), list(tensors)
    header = b"".join(
        [
            b"GGUF",
            u32(version),
            u64(len(tensors) if tensor_count is None else tensor_count),
            u64(len(keys) if key_count is None else key_count),
            *keys,
            *tensors,
        ]
    )
    return header + b"\0" * (-len(header) % alignment if data else 0) + data


def sample(version: int = 3) -> bytes:
    """A small file with every kind of value in it and two tensors."""
    keys = [string("general.architecture", "llama")]
    keys += [scalar(f"scalar.{kind}", kind, 1) for kind in FORMS]
    keys += [numbers(f"list.{kind}", kind, (0, 1, 1)) for kind in FORMS]
    keys += [strings("words", ["", "one", "zwei", "Ġ三", "x" * 300])]
    keys += [string("last", "naïve")]
    data = np.arange(8 * 3 + 32, dtype="<f4").tobytes()
    tensors = [tensor("first", (8, 3), 0, 0), tensor("second", (32,), 0, 96)]
    return gguf(keys, tensors, data[: 96 + 128], version)
