"""The meaning of the op, in the precision of x."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turbodflash_kernels._reference import ReferenceDevice

Floats = NDArray[Any]


def refuse(device: ReferenceDevice, *, base: Floats, group: int) -> str | None:
    if base.shape[1] % group:
        return f"{base.shape[1]} channels are not whole groups of {group}"
    return None


def bind(device: ReferenceDevice, *, base: Floats, group: int) -> Callable[..., Floats]:
    taps, width = base.shape

    def tap_conv(x: Floats, dynamic: Floats, residual: Floats | None = None) -> Floats:
        n = len(x)
        spread = np.repeat(dynamic.reshape(n, taps, width // group), group, axis=2)
        out = np.zeros_like(x)
        for tap in range(min(taps, n)):
            out[tap:] += (base[tap] + spread[tap:, tap]) * x[: n - tap]
        return out if residual is None else out + residual

    return tap_conv
