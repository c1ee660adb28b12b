"""`top_logits` on a GPU: the kernels of the ops that it is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from turbodflash_kernels._gpu.device import GpuDevice
from turbodflash_kernels._gpu.weight import GpuWeight
from turbodflash_kernels.linear import gpu as linear
from turbodflash_kernels.op import Array, Prologue
from turbodflash_kernels.top_logits.composed import compose


def refuse(device: GpuDevice, *, weight: GpuWeight, prologue: Prologue, **rest: Any) -> str | None:
    return linear.refuse(device, weight=weight, prologue=prologue, bias=None)


def bind(device: GpuDevice, **statics: Any) -> Callable[[Array], tuple[Array, Array]]:
    return compose(device, **statics)
