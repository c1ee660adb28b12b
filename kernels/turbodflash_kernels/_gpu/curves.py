"""Curves that activations go through, inside a kernel."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def activated(x, ACTIVATION: tl.constexpr):
    """x through "sigmoid", "silu" or "gelu", the tanh form."""
    if ACTIVATION == "sigmoid":
        return tl.sigmoid(x)
    if ACTIVATION == "silu":
        return x * tl.sigmoid(x)
    inner = 0.7978845608028654 * x * (1 + 0.044715 * x * x)  # sqrt(2 / pi)
    return x * tl.sigmoid(2 * inner)  # (1 + tanh(z)) / 2 = sigmoid(2 z)


@triton.jit
def tanh(x):
    """By a series below 0.625, where the quotient would lose the small numbers."""
    is_small = tl.abs(x) < 0.625
    inner = tl.where(is_small, x, 0.0)
    square = inner * inner
    p = tl.fma(square, -0.00609671416, 0.020997179)
    p = tl.fma(p, square, -0.0538509096)
    p = tl.fma(p, square, 0.133327697)
    p = tl.fma(p, square, -0.333333289)
    small = tl.fma(p * square, inner, inner)
    less = tl.exp(-2 * tl.abs(x))
    large = (1 - less) / (1 + less)
    return tl.where(is_small, small, tl.where(x < 0, -large, large))
