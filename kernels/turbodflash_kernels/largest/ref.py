"""The meaning of the op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turbodflash_kernels._reference import ReferenceDevice

Floats = NDArray[Any]


def refuse(device: ReferenceDevice, *, count: int) -> str | None:
    return None


def bind(
    device: ReferenceDevice, *, count: int
) -> Callable[[Floats], tuple[Floats, NDArray[np.int32]]]:
    def largest(x: Floats) -> tuple[Floats, NDArray[np.int32]]:
        numbers = np.where(np.isnan(x), -np.inf, x).astype(x.dtype)
        ids = np.argsort(-numbers, axis=-1, kind="stable")[:, :count]
        return np.take_along_axis(numbers, ids, axis=-1), ids.astype(np.int32)

    return largest
