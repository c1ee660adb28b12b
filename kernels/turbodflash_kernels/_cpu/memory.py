"""Long-lived memory in huge pages.

A token reads every weight once. In 4 KB pages that is a page walk every 64 cache lines, and the
processor's prefetching stops at every page's end: a fifth of the bandwidth.
"""

from __future__ import annotations

import ctypes
import mmap
from contextlib import suppress
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

HUGE_PAGE = 2 << 20
SLAB_BYTES = 32 << 20
LINE = 64

_LIBC = ctypes.CDLL(None) if hasattr(mmap, "MADV_HUGEPAGE") else None  # on Linux
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # glibc's names for mallopt
PLENTY, USUAL = 256 << 20, 1 << 20


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


def zeros(size: int) -> NDArray[np.uint8]:
    """In a mapping of their own from a huge page on. The last page is huge only if all of it is
    asked for: nothing is taken that a plan does not know of."""
    if size < HUGE_PAGE:
        whole = np.zeros(size + LINE, np.uint8)
        start = -whole.__array_interface__["data"][0] % LINE
        return whole[start : start + size]
    return huge(size, size // HUGE_PAGE * HUGE_PAGE)


def huge(size: int, most: int | None = None) -> NDArray[np.uint8]:
    """Zeros in a mapping of their own, in huge pages as far as they are filled; of more than `most`
    bytes, only as many."""
    room = -(-size // HUGE_PAGE) * HUGE_PAGE
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.frombuffer(mmap.mmap(-1, size), np.uint8)
    # private: the pages of a shared mapping are never huge
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    mapping = mmap.mmap(-1, room + HUGE_PAGE, flags=flags)
    whole = np.frombuffer(mapping, np.uint8)
    start = -whole.__array_interface__["data"][0] % HUGE_PAGE
    with suppress(OSError):  # a system without huge pages: the same, a little slower
        mapping.madvise(mmap.MADV_HUGEPAGE, start, room if most is None else most)
    return whole[start : start + size]


def keep_freed(keep: bool) -> None:
    """Let the C library keep what arrays of a few megabytes give back, or stop it.

    It would give their pages to the system, which clears them before they come again: while
    weights are packed, that takes as long as the packing. Other C libraries are left as they are.
    """
    if _LIBC is None or not hasattr(_LIBC, "mallopt"):
        return
    _LIBC.mallopt(MMAP_THRESHOLD, SLAB_BYTES if keep else USUAL)
    _LIBC.mallopt(TRIM_THRESHOLD, PLENTY if keep else USUAL)
    if not keep:
        _LIBC.malloc_trim(0)
