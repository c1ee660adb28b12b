"""The meaning of the op, in the precision of x."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turbodflash_kernels._reference import ReferenceDevice, ReferenceWeight
from turbodflash_kernels.op import Gated, Prologue, RmsNorm

Floats = NDArray[Any]


def refuse(
    device: ReferenceDevice, *, weight: ReferenceWeight, prologue: Prologue, bias: Floats | None
) -> str | None:
    return None


def bind(
    device: ReferenceDevice, *, weight: ReferenceWeight, prologue: Prologue, bias: Floats | None
) -> Callable[..., Floats]:
    def linear(x: Floats, residual: Floats | None = None) -> Floats:
        return product(activations(x, prologue), weight, bias, residual)

    return linear


def activations(x: Floats, prologue: Prologue) -> Floats:
    """What the matrix is multiplied with, [n, k]."""
    if isinstance(prologue, RmsNorm):
        rms = np.sqrt(np.mean(np.square(x), axis=-1, keepdims=True) + x.dtype.type(prologue.eps))
        return x / rms * prologue.weight
    if isinstance(prologue, Gated):
        gate, up = np.split(x, 2, axis=-1)
        return (silu if prologue.activation == "silu" else gelu)(gate) * up
    return x


def product(
    a: Floats, weight: ReferenceWeight, bias: Floats | None, residual: Floats | None
) -> Floats:
    """a @ weight^T + bias + residual, [n, rows]."""
    matrix = weight.values.astype(a.dtype, copy=False)
    # one product per row: a product of many rows sums in another order than that of one
    y = np.array([matrix @ row for row in np.ascontiguousarray(a)]).reshape(len(a), weight.rows)
    if bias is not None:
        y += bias
    if residual is not None:
        y += residual
    return y


def silu(x: Floats) -> Floats:
    return x / (1 + np.exp(-np.maximum(x, -80)))  # below -80 the quotient is 0 in float32


def gelu(x: Floats) -> Floats:
    c = x.dtype.type(0.7978845608028654)  # sqrt(2 / pi)
    return x * (1 + np.tanh(c * x * (1 + x.dtype.type(0.044715) * np.square(x)))) / 2
