"""A small kernel to compile and call: cosines and sines of one position."""

from __future__ import annotations

import numpy as np

from turbodflash_kernels._cpu.library import function_at
from turbodflash_kernels._cpu.team import address

KERNEL = ("rope_store.cpu", "angles", "norm")
EXPECTED = np.array([np.cos(2), np.cos(2), -np.sin(2), np.sin(2)])


def angles(kernel: int) -> np.ndarray:
    """cos, cos, -sin and sin of 0.5 * position 4, by the kernel at this address."""
    position, frequency, out = np.array([4], np.int32), np.array([0.5], "f4"), np.zeros(4, "f4")
    one = int(np.float32(1).view(np.uint32))
    words = [address(position), 1, address(frequency), 1, one, address(out)]
    arguments = np.array(words, np.int64)
    function_at(kernel, 3)(address(arguments), 0, 0)
    return out
