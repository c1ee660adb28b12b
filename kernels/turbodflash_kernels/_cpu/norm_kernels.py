"""The root mean square of a row, for kernels of Numba."""

from __future__ import annotations

import math

import numba
import numpy as np

from turbodflash_kernels._cpu.simd import vfma, vload, vload_partial, vsplat, vsum

inline = numba.njit(error_model="numpy", forceinline=True)


@inline
def inverse_rms(x, k, eps):
    """1 / sqrt(mean(x^2) + eps) of the k float32 at address x."""
    total = vsplat(np.float32(0.0))
    for i in range(0, k - 15, 16):
        v = vload(x + 4 * i)
        total = vfma(v, v, total)
    rest = k % 16
    if rest > 0:
        v = vload_partial(x + 4 * (k - rest), rest)
        total = vfma(v, v, total)
    return np.float32(1.0) / np.float32(math.sqrt(vsum(total) / np.float32(k) + eps))
