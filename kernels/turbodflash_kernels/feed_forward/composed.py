"""The op made of the two that say what it means, for any device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from turbodflash_kernels.device import Device, Weight
from turbodflash_kernels.op import Array, Gated, Prologue


def compose(
    device: Device,
    *,
    gate_up: Weight,
    down: Weight,
    prologue: Prologue,
    activation: Literal["silu", "gelu"],
    gate_up_bias: Array | None,
    down_bias: Array | None,
) -> Callable[..., Array]:
    """Two products. Raises NoKernel as `Device.bind` does."""
    first = device.bind("linear", weight=gate_up, prologue=prologue, bias=gate_up_bias)
    second = device.bind("linear", weight=down, prologue=Gated(activation), bias=down_bias)

    def feed_forward(x: Array, residual: Array | None = None) -> Array:
        return second(first(x), residual)

    return feed_forward
