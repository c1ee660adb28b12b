"""What every cache type offers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Bytes = NDArray[Any]  # uint8; a narrower type is lost at the first shift by an int

F16_MOST = 65504.0


@dataclass(frozen=True, slots=True, eq=False)
class KVType:
    """A type that keys or values are stored in: `block` numbers take `block_bytes`.

    rotation: "turbo" for a type that is made for heads rotated by `Rotation("turbo", 128)`, and
        stores only such; "none" for one that takes numbers as they are.
    most: numbers up to this size are stored finite. NaN, infinity and larger ones spoil the block
        that they are in, and no other.
    encode_blocks: f32 [n, block] -> uint8 [n, block_bytes]; decode_blocks: the way back.
    encode_half_blocks: the same for blocks of which a head filled half before it was rotated, and
        nothing else is wanted back; None where that makes no difference.
    """

    name: str
    block: int
    block_bytes: int
    most: float
    encode_blocks: Callable[[Floats], Bytes]
    decode_blocks: Callable[[Bytes], Floats]
    rotation: Literal["none", "turbo"] = "none"
    encode_half_blocks: Callable[[Floats], Bytes] | None = None

    @property
    def quantised(self) -> bool:
        """Whether numbers share a scale."""
        return self.block > 1

    def padded(self, head_dim: int) -> int:
        """Numbers that are stored of a head: whole blocks."""
        return -(-head_dim // self.block) * self.block

    def row_bytes(self, head_dim: int) -> int:
        """Bytes of a head, its padding included."""
        return self.padded(head_dim) // self.block * self.block_bytes

    def encode(self, x: NDArray[Any]) -> Bytes:
        """x [..., n] in float32 arithmetic -> uint8 [..., row_bytes(n)], n whole blocks."""
        return self._encode(x, self.encode_blocks)

    def encode_halves(self, x: NDArray[Any]) -> Bytes:
        """As `encode`, of blocks that heads filled half before they were rotated."""
        return self._encode(x, self.encode_half_blocks or self.encode_blocks)

    def _encode(self, x: NDArray[Any], encode_blocks: Callable[[Floats], Bytes]) -> Bytes:
        blocks = np.ascontiguousarray(x, np.float32).reshape(-1, self.block)
        with np.errstate(all="ignore"):  # what cannot be stored is not worth a warning
            stored = encode_blocks(blocks)
        return stored.reshape(*x.shape[:-1], self.row_bytes(x.shape[-1]))

    def decode(self, stored: Bytes) -> Floats:
        """uint8 [..., row_bytes(n)] -> f32 [..., n]."""
        blocks = np.ascontiguousarray(stored).reshape(-1, self.block_bytes)
        numbers = stored.shape[-1] // self.block_bytes * self.block
        with np.errstate(all="ignore"):
            values = self.decode_blocks(blocks)
        return values.reshape(*stored.shape[:-1], numbers)


def sum_of_halves(x: Floats) -> Floats:
    """The sum over the last axis, a power of two long: halves are added until one number is left.

    An order that lanes can follow, and the same on every machine.
    """
    while x.shape[-1] > 1:
        half = x.shape[-1] // 2
        x = x[..., :half] + x[..., half:]
    return x[..., 0]
