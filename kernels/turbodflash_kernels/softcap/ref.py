"""The meaning of the op, in the precision of x."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turbodflash_kernels._reference import ReferenceDevice

Floats = NDArray[Any]


def refuse(device: ReferenceDevice, *, cap: float) -> str | None:
    return None


def bind(device: ReferenceDevice, *, cap: float) -> Callable[[Floats], Floats]:
    def softcap(x: Floats) -> Floats:
        held: Floats = np.tanh(x / x.dtype.type(cap)) * x.dtype.type(cap)
        return held

    return softcap
