"""What types of blocks of 32 share: scales, rounding, and codes packed into bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from turbodflash_kernels.kv._base import Bytes, Floats

BLOCK = 32


def reciprocal(scale: Floats) -> Floats:
    """1 / scale, or 0 for a scale of 0."""
    return np.where(scale == 0, np.float32(0), 1 / np.where(scale == 0, np.float32(1), scale))


def extreme(x: Floats) -> Floats:
    """The number of each row [n, 32] that is largest without its sign, the first of equals.

    Never -0: the sign of a scale of 0 shows in its bytes.
    """
    found = np.take_along_axis(x, np.abs(x).argmax(axis=1, keepdims=True), axis=1)[:, 0]
    return found + np.float32(0)


def rounded_away(x: Floats) -> Floats:
    """The nearest whole number; halves go away from zero."""
    whole = np.trunc(x)
    return whole + np.sign(x) * (np.abs(x - whole) >= 0.5)


def codes(x: Floats, most: int) -> Bytes:
    """x without its fraction, as a code of 0 to `most`; NaN is 0."""
    return np.nan_to_num(np.clip(x, 0, most)).astype(np.uint8)


def half(values: Floats) -> Bytes:
    """float32 [n] as the bytes [n, 2] of float16, rounded to even."""
    return values.astype("<f2")[:, None].view(np.uint8)


def half_at(blocks: Bytes, at: int) -> NDArray[np.float32]:
    """The float16 at byte `at` of each block: f32 [n, 1]."""
    return blocks[:, at : at + 2].copy().view("<f2").astype(np.float32)


def nibbles(code: Bytes) -> Bytes:
    """Codes [n, 32] of four bits as bytes [n, 16]: byte j holds 16 + j above j."""
    return code[:, :16] | (code[:, 16:] << 4)


def nibbles_at(blocks: Bytes, at: int) -> Bytes:
    """The codes [n, 32] of the 16 bytes at byte `at`."""
    packed = blocks[:, at : at + 16]
    return np.concatenate([packed & 0xF, packed >> 4], axis=1)


def fifth_bits(code: Bytes) -> Bytes:
    """Bit 4 of codes [n, 32] as a word of 32 bits, in bytes [n, 4]."""
    return np.packbits(code >> 4, axis=1, bitorder="little")


def fifth_bits_at(blocks: Bytes, at: int) -> Bytes:
    """0 or 16 for each of 32 codes [n, 32], from the word at byte `at`."""
    return np.unpackbits(blocks[:, at : at + 4], axis=1, bitorder="little") << 4


def joined(*parts: NDArray[Any]) -> Bytes:
    """Bytes of blocks, part after part."""
    return np.concatenate([part.view(np.uint8) for part in parts], axis=1)
