"""The meaning of the op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turbodflash_kernels._reference import ReferenceDevice, ReferenceWeight


def refuse(device: ReferenceDevice, *, table: ReferenceWeight, scale: float) -> str | None:
    return None


def bind(
    device: ReferenceDevice, *, table: ReferenceWeight, scale: float
) -> Callable[[NDArray[np.int32]], NDArray[Any]]:
    def embed(tokens: NDArray[np.int32]) -> NDArray[Any]:
        return table.values[tokens.reshape(-1)].astype(device.precision) * device.precision(scale)

    return embed
