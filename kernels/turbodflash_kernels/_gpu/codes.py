"""How the GPU keeps heads of keys and values: where each number's code lies.

A head of a plain type is its numbers. Of others, codes lie in words of 32 bits and factors apart
from them, so that both load in pieces of 4 to 16 bytes; no block of a file does. A word holds codes
of several planes; a plane is 32 numbers that follow each other in the head, a block of their own:

    number 32 P + 2 SUB j + SUB h + s of a chunk has its code in word j, half h

A chunk is the numbers of at most 16 words, at most 128 of them. In a half the codes stand in the
order of P, then s. The turbo types have those of h = 0 and h = 1 side by side instead, and turbo3
and turbo4 the number of a level without its sign there; the signs lie where one shift moves those
of both halves to their tops. Fifth bits and the signs of turbo3 lie beside the words, 8 or 16 bits
for each.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

PLAIN = ("f32", "f16", "bf16")
PLANE = 32  # numbers of a plane of coded types; a block of those that have blocks
WIDEST_PLANE = 128  # of plain types
GROUP = 128  # numbers that share a norm


class Layout(NamedTuple):
    """bits: of a field in a word; beside: bits for each word that lie apart.

    offset: what a code is greater than its number of scales. factors: of a block, 0 if a norm is
    shared by 128 numbers. signed: fields are levels without their signs.
    """

    bits: int
    beside: int = 0
    offset: int = 0
    factors: int = 1
    signed: bool = False


LAYOUTS = {
    "q8_0": Layout(8, offset=128),
    "q4_0": Layout(4, offset=8),
    "q4_1": Layout(4, factors=2),
    "q5_0": Layout(4, beside=8, offset=16),
    "q5_1": Layout(4, beside=8, factors=2),
    "iq4_nl": Layout(4),
    "turbo2": Layout(2, factors=0),
    "turbo3": Layout(2, beside=16, factors=0, signed=True),
    "turbo4": Layout(4, factors=0, signed=True),
}


class Shape(NamedTuple):
    """The numbers by which the layout of a head goes.

    chunk: numbers of a chunk; words: of a chunk; planes: of a chunk; sub: fields of a half for one
    plane.
    """

    chunk: int
    words: int
    planes: int
    sub: int


def shape_of(kind: str, dim: int) -> Shape:
    """Of a coded type."""
    bits = LAYOUTS[kind].bits
    chunk = min(128, 512 // bits, dim & -dim)  # the power of two in it
    planes = chunk // PLANE
    return Shape(chunk, chunk * bits // 32, planes, 16 // bits // planes)


def plane_of(kind: str, dim: int) -> int:
    """Numbers of a plane: what one tile of a head holds."""
    return min(WIDEST_PLANE, dim & -dim) if kind in PLAIN else PLANE


def elements_per_head(kind: str, dim: int) -> int:
    """Numbers of a plain type, or words of codes."""
    return dim if kind in PLAIN else dim * LAYOUTS[kind].bits // 32


def scales_per_head(kind: str, dim: int) -> int:
    """float16 numbers beside the codes of a head; whole words of scales and minima."""
    if kind in PLAIN:
        return 0
    factors = LAYOUTS[kind].factors
    return -(-dim // PLANE * factors // 2) * 2 if factors else dim // GROUP


class Fields(NamedTuple):
    """For each number of a head: its word, and how far to the left its field lies in there.

    beside: how far to the left its bit lies among those beside the word. sign: the same in the
    word, of turbo4.
    """

    word: NDArray[np.int64]
    shift: NDArray[np.int64]
    beside: NDArray[np.int64]
    sign: NDArray[np.int64]


def fields_of(kind: str, dim: int) -> Fields:
    """Of a coded type."""
    chunk, words, planes, sub = shape_of(kind, dim)
    number = np.arange(dim)
    plane, s, half = number // PLANE % planes, number % sub, number // sub % 2
    word = number // chunk * words + number % PLANE // (2 * sub)
    field = plane * sub + s
    if LAYOUTS[kind].factors:
        return Fields(word, LAYOUTS[kind].bits * field + 16 * half, field + 4 * half, field)
    shift = 4 * (2 * plane + half) + 2 * s
    return Fields(word, shift, 7 - field + 8 * half, 4 * plane + 3 + 16 * half)
