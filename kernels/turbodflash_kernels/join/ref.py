"""The meaning of the op, in the precision of the parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turbodflash_kernels._reference import ReferenceDevice
from turbodflash_kernels.linear.ref import activations
from turbodflash_kernels.op import RmsNorm

Floats = NDArray[Any]


def refuse(device: ReferenceDevice, *, norms: tuple[RmsNorm | None, ...]) -> str | None:
    return None


def bind(device: ReferenceDevice, *, norms: tuple[RmsNorm | None, ...]) -> Callable[..., Floats]:
    def join(*parts: Floats) -> Floats:
        normed = [activations(part, norm) for part, norm in zip(parts, norms, strict=True)]
        return np.concatenate(normed, axis=-1)

    return join
