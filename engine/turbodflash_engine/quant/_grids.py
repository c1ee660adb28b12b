"""Codes of the types that take four or eight weights at once out of a grid.

A weight is `scale * size * sign`, and a grid has few sizes: size and sign together make a code of
three or four bits, and the scale stays exact. What the grids are is data of the file format; the
`gguf` package has it, and is asked when a file first needs it.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turbodflash_engine.quant._base import Bytes
from turbodflash_kernels.planar import Format

TWO_BIT_SIZES = (8, 25, 43)
NEGATIVE = {3: 4, 4: 8}
"""What a code of so many bits has more for the negative of a size."""


def grid_format(sizes: tuple[int, ...], bits: int, block: int, exponent: int) -> Format:
    """Codes of `bits` bits: the sizes, filled up with the last, then their negatives."""
    filled = (*sizes, *[sizes[-1]] * (NEGATIVE[bits] - len(sizes)))
    table = (*filled, *(-size for size in filled))
    return Format(bits=bits, block=block, two_level=True, exponent=exponent, table=table)


@cache
def points(name: str, sizes: tuple[int, ...]) -> NDArray[Any]:
    """The grid of a type, such as "IQ2_XXS": of each point, four or eight bytes of codes, the
    places of its numbers in `sizes`, as one uint32 or uint64.
    """
    kind = getattr(import_module("gguf.quants"), name)
    kind.init_grid()
    codes = np.searchsorted(sizes, kind.grid.reshape(kind.grid_shape)).astype(np.uint8)
    points: NDArray[Any] = codes.view(f"u{codes.shape[1]}")[:, 0]
    return points


@cache
def marks(code: int) -> NDArray[np.uint64]:
    """For each byte of eight bits: eight bytes, `code` where a bit is set."""
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    return (bits * np.uint8(code)).view(np.uint64)[:, 0]


def fields(words: NDArray[Any], count: int, bits: int) -> NDArray[Any]:
    """The lowest `count` fields of each word: [rows, n] -> [rows, n * count], lowest first."""
    found = np.empty((*words.shape, count), words.dtype)
    mask = words.dtype.type((1 << bits) - 1)
    for at in range(count):
        np.bitwise_and(words >> words.dtype.type(bits * at), mask, out=found[:, :, at])
    return found.reshape(len(words), -1)


@cache
def even_marks(code: int) -> NDArray[np.uint64]:
    """For each seven bits, the marks of eight: the last makes the number of marks even."""
    seven = np.arange(128, dtype=np.uint8)
    ones = np.unpackbits(seven[:, None], axis=1).sum(axis=1).astype(np.uint8)
    return marks(code)[seven | ((ones & np.uint8(1)) << np.uint8(7))]


def odd(counts: NDArray[Any]) -> NDArray[np.int8]:
    """2 n + 1: in these types a block's scale is an odd multiple of a part of the super-block's."""
    return (2 * counts + 1).astype(np.int8)


def joined(codes: NDArray[Any], marked: NDArray[np.uint64] | None = None) -> Bytes:
    """Words of codes, and of marks on them, as bytes: uint8 [rows, weights]."""
    words = codes if marked is None else codes.view(np.uint64) | marked
    return words.view(np.uint8)


ONE_BIT_TABLE = (-7, 1, 9, 9, -9, -1, 7, 7)
"""Eight times -1, 0 or 1: plus one, or, where a code has its third bit, minus one."""


def one_bit() -> NDArray[Any]:
    """The grid of the 1-bit types."""
    return points("IQ1_S", (-1, 0, 1))
