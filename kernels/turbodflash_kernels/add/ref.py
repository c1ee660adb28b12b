"""The meaning of the op, in the precision of the parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from turbodflash_kernels._reference import ReferenceDevice
from turbodflash_kernels.linear.ref import activations
from turbodflash_kernels.op import RmsNorm

Floats = NDArray[Any]


def refuse(device: ReferenceDevice, **static: object) -> str | None:
    return None


def bind(
    device: ReferenceDevice,
    *,
    norms: tuple[RmsNorm | None, ...],
    scale: float = 1.0,
    groups: int = 1,
) -> Callable[..., Floats]:
    def add(*parts: Floats) -> Floats:
        first, *others = (
            activations(part.reshape(len(part), groups, -1), norm).reshape(part.shape)
            for part, norm in zip(parts, norms, strict=True)
        )
        return sum(others, first) * first.dtype.type(scale)

    return add
