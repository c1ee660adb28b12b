"""Scratch arrays that give their memory back when the last view of them is gone.

Kernels run in the order in which they were recorded, so memory may be handed out again as soon as
nothing that is still to be recorded can name it.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from turbodflash_kernels._cpu.memory import Memory
from turbodflash_kernels._cpu.team import address


class _Block:
    """Memory of one size class."""

    __slots__ = ("address", "bytes")

    def __init__(self, memory: NDArray[np.uint8]) -> None:
        self.bytes, self.address = memory, address(memory)


class _Loan:
    """Lends a block to one array; numpy keeps it alive through the array and its slices."""

    __slots__ = ("__array_interface__", "_block", "_free")

    def __init__(
        self, block: _Block, shape: tuple[int, ...], dtype: np.dtype[Any], free: list[_Block]
    ) -> None:
        self._block, self._free = block, free
        self.__array_interface__ = {
            "version": 3,
            "shape": shape,
            "typestr": dtype.str,
            "data": (block.address, False),
        }

    def __del__(self) -> None:
        self._free.append(self._block)


def is_scratch(array: object) -> bool:
    """Whether an arena lent this array, or what it is a slice of."""
    while type(array) is np.ndarray:
        array = array.base
    return type(array) is _Loan


class Arena:
    """Blocks by size class, kept until the arena goes."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._free: dict[int, list[_Block]] = {}
        self.nbytes = 0

    def take(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """An array whose contents nobody may rely on."""
        dtype = np.dtype(dtype)
        size = max(prod(shape) * dtype.itemsize, 1)
        # at most a quarter of a block is unused
        grain = max(1 << max(size.bit_length() - 3, 0), 64)
        capacity = -(-size // grain) * grain
        free = self._free.get(capacity) or self._large_enough(capacity)
        if free is None:
            free = self._free.setdefault(capacity, [])
            free.append(_Block(self._memory.take((capacity,), np.uint8)))
            self.nbytes += capacity
        return np.asarray(_Loan(free.pop(), shape, dtype, free))

    def _large_enough(self, capacity: int) -> list[_Block] | None:
        """Free blocks of the smallest fitting size, but not of more than twice what is needed:
        or passes of every number of rows would have blocks of their own in the end.
        """
        fitting = (c for c, free in self._free.items() if free and capacity <= c <= 2 * capacity)
        smallest = min(fitting, default=None)
        return None if smallest is None else self._free[smallest]
