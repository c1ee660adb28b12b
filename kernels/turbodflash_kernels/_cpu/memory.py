"""Long-lived memory in huge pages.

A token reads every weight once. In 4 KB pages that is a page walk every 64 cache lines, and the
processor's prefetching stops at every page's end: a fifth of the bandwidth.
"""

from __future__ import annotations

import mmap
from contextlib import suppress
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

HUGE_PAGE = 2 << 20
SLAB_BYTES = 32 << 20
LINE = 64


class Memory:
    """Hands out zeroed arrays from large mappings; they are never given back one by one."""

    def __init__(self) -> None:
        self._slab = np.empty(0, np.uint8)
        self._used = 0

    def take(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """Zeros that start on a cache line (untouched memory: the system gives it on first use)."""
        dtype = np.dtype(dtype)
        size = prod(shape) * dtype.itemsize
        start = -(-self._used // LINE) * LINE
        if start + size > len(self._slab):
            self._slab, start = huge(max(size, SLAB_BYTES)), 0
        self._used = start + size
        return self._slab[start : start + size].view(dtype).reshape(shape)


def huge(size: int) -> NDArray[np.uint8]:
    """Zeros in a mapping of their own, in huge pages as far as they are filled."""
    room = -(-size // HUGE_PAGE) * HUGE_PAGE + HUGE_PAGE
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        mapping = mmap.mmap(-1, room)
    else:
        # private: the pages of a shared mapping are never huge
        mapping = mmap.mmap(-1, room, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with suppress(OSError):  # a system without huge pages: the same, a little slower
            mapping.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(mapping, np.uint8)
    start = -whole.__array_interface__["data"][0] % HUGE_PAGE
    return whole[start : start + size]
