"""The meaning of the op, in the precision of x."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turbodflash_kernels._reference import ReferenceDevice
from turbodflash_kernels.linear.ref import gelu, silu
from turbodflash_kernels.op import Activation

Floats = NDArray[Any]


def refuse(device: ReferenceDevice, *, activation: Activation) -> str | None:
    return None


def bind(device: ReferenceDevice, *, activation: Activation) -> Callable[..., Floats]:
    activate = {"sigmoid": sigmoid, "silu": silu, "gelu": gelu}[activation]

    def gate(gate: Floats, x: Floats, residual: Floats | None = None) -> Floats:
        gated = activate(gate) * x
        return gated if residual is None else gated + residual

    return gate


def sigmoid(x: Floats) -> Floats:
    return 1 / (1 + np.exp(-np.maximum(x, -80)))  # below -80 the quotient is 0 in float32
