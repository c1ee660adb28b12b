"""How one head of keys or values is stored: padded, rotated, quantised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turbodflash_kernels.errors import NoKernel
from turbodflash_kernels.kv._base import Bytes, Floats, KVType
from turbodflash_kernels.kv._rotation import HADAMARD_BLOCK, NO_ROTATION, TURBO_BLOCK, Rotation


@dataclass(frozen=True, slots=True)
class HeadFormat:
    """One head of `head_dim` numbers, stored as `padded` numbers in `row_bytes` bytes.

    Stored numbers are those of the head, zeros behind them, rotated; products of stored heads are
    those of the heads themselves.
    """

    type: KVType
    head_dim: int
    rotation: Rotation = NO_ROTATION

    @classmethod
    def of_keys(cls, type: KVType, head_dim: int, rotate: bool = False) -> HeadFormat:
        """rotate: if the type is quantised and brings no rotation of its own."""
        block = HADAMARD_BLOCK
        while head_dim % (2 * block) == 0:
            block *= 2
        return cls(type, head_dim, _rotation(type, head_dim, rotate, block))

    @classmethod
    def of_values(cls, type: KVType, head_dim: int, rotate: bool = False) -> HeadFormat:
        """As `of_keys`, in the smallest blocks."""
        return cls(type, head_dim, _rotation(type, head_dim, rotate, HADAMARD_BLOCK))

    @property
    def padded(self) -> int:
        return self.type.padded(self.head_dim)

    @property
    def row_bytes(self) -> int:
        return self.type.row_bytes(self.head_dim)

    @property
    def rotated(self) -> bool:
        return self.rotation.kind != "none"

    @property
    def half_filled(self) -> bool:
        """Whether the last block is rotated of half a block of numbers and as many zeros: of such,
        the second half repeats the first, but for signs.
        """
        return self.rotation.kind == "turbo" and 2 * (self.padded - self.head_dim) == TURBO_BLOCK

    @property
    def most(self) -> float:
        """Heads of numbers up to this size are stored finite."""
        if self.rotation.kind == "hadamard":  # which may add up all numbers of a block in one
            return self.type.most / self.rotation.block**0.5
        return self.type.most

    def turned(self, x: NDArray[Any]) -> NDArray[Any]:
        """Heads [..., head_dim] as stored numbers [..., padded], not quantised."""
        missing = self.padded - self.head_dim
        if missing:
            x = np.concatenate([x, np.zeros((*x.shape[:-1], missing), x.dtype)], axis=-1)
        return self.rotation.forward(x)

    def back(self, stored: NDArray[Any]) -> NDArray[Any]:
        """Stored numbers [..., padded] as heads [..., head_dim]."""
        return self.rotation.inverse(stored)[..., : self.head_dim]

    def encode(self, x: NDArray[Any]) -> Bytes:
        """Heads [..., head_dim] -> uint8 [..., row_bytes]."""
        return self.encode_turned(self.turned(np.asarray(x, np.float32)))

    def encode_turned(self, stored: NDArray[Any]) -> Bytes:
        """Stored numbers [..., padded], not quantised -> uint8 [..., row_bytes]."""
        if not self.half_filled:
            return self.type.encode(stored)
        whole, rest = np.split(stored, [self.padded - TURBO_BLOCK], axis=-1)
        parts = self.type.encode(whole), self.type.encode_halves(rest)
        return np.concatenate(parts, axis=-1)

    def decode(self, stored: Bytes) -> Floats:
        """uint8 [..., row_bytes] -> heads f32 [..., head_dim]."""
        return self.back(self.type.decode(stored))


def _rotation(type: KVType, head_dim: int, rotate: bool, block: int) -> Rotation:
    if type.rotation == "turbo":
        return Rotation("turbo", TURBO_BLOCK)
    if not rotate or not type.quantised:
        return NO_ROTATION
    if head_dim % HADAMARD_BLOCK:
        raise NoKernel(
            f"heads of {head_dim} numbers cannot be rotated for {type.name}: "
            f"that is no multiple of {HADAMARD_BLOCK}",
            hint="store them without rotation",
        )
    return Rotation("hadamard", block)
