"""Rotations of heads that share large channels out among all, before numbers are quantised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[Any]

TURBO_BLOCK = 128
HADAMARD_BLOCK = 64
"""The least that is rotated, and what sizes of heads must be whole multiples of."""


def signs(words: tuple[int, ...]) -> NDArray[np.float32]:
    """+1 or -1 for each bit of 32-bit words, the lowest first; a set bit is -1."""
    bits = np.unpackbits(np.array(words, "<u4").view(np.uint8), bitorder="little")
    return 1 - 2 * bits.astype(np.float32)


SIGNS_BEFORE = signs((0xE46A0359, 0x42F85949, 0xA4C63BBB, 0x49F250A9))
SIGNS_AFTER = signs((0x16ACEE90, 0x3F628FDC, 0xB7A5357A, 0xBEA56562))


@dataclass(frozen=True, slots=True)
class Rotation:
    """An orthogonal map of each `block` numbers of a head.

    "none": x. "hadamard": H x / sqrt(block), its own inverse, with H the Hadamard matrix in
    natural order. "turbo": SIGNS_AFTER * (H / sqrt(128)) * SIGNS_BEFORE * x, of blocks of 128.
    """

    kind: Literal["none", "hadamard", "turbo"] = "none"
    block: int = 1

    def forward(self, x: Floats) -> Floats:
        """x [..., n], n whole blocks, in its own precision."""
        if self.kind == "none":
            return x
        if self.kind == "hadamard":
            return hadamard(x, self.block)
        return self._turbo(x, SIGNS_BEFORE, SIGNS_AFTER)

    def inverse(self, x: Floats) -> Floats:
        """The way back."""
        return (
            self._turbo(x, SIGNS_AFTER, SIGNS_BEFORE) if self.kind == "turbo" else self.forward(x)
        )

    def _turbo(self, x: Floats, first: NDArray[np.float32], last: NDArray[np.float32]) -> Floats:
        blocks = x.reshape(*x.shape[:-1], x.shape[-1] // self.block, self.block)
        turned = hadamard(blocks * first.astype(x.dtype), self.block) * last.astype(x.dtype)
        return turned.reshape(x.shape)


NO_ROTATION = Rotation()


def hadamard(x: Floats, block: int) -> Floats:
    """x [..., n], each block of a power of two times the orthonormal Hadamard matrix.

    Butterflies (a + b, a - b) over distances 1, 2, 4, ..., then one factor: an order that every
    device can follow, so that all may store the same numbers.
    """
    shape, distance = x.shape, 1
    while distance < block:
        pairs = x.reshape(*shape[:-1], shape[-1] // (2 * distance), 2, distance)
        first, second = pairs[..., 0, :], pairs[..., 1, :]
        x = np.stack([first + second, first - second], axis=-2).reshape(shape)
        distance *= 2
    return x * x.dtype.type(block**-0.5)
