"""`feed_forward` on a GPU: the kernels of the ops that it is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from turbodflash_kernels._gpu.device import GpuDevice
from turbodflash_kernels._gpu.weight import GpuWeight
from turbodflash_kernels.feed_forward.composed import compose
from turbodflash_kernels.linear import gpu as linear
from turbodflash_kernels.op import Array, Gated, Prologue


def refuse(
    device: GpuDevice,
    *,
    gate_up: GpuWeight,
    down: GpuWeight,
    prologue: Prologue,
    activation: Any,
    **biases: Any,
) -> str | None:
    first = linear.refuse(device, weight=gate_up, prologue=prologue, bias=None)
    return first or linear.refuse(device, weight=down, prologue=Gated(activation), bias=None)


def bind(device: GpuDevice, **statics: Any) -> Callable[..., Array]:
    return compose(device, **statics)
