"""`top_logits` on a GPU: the kernels of the ops that it is made of."""

from __future__ import annotations

from collections.abc import Callable

from turbodflash_kernels._gpu.device import GpuDevice
from turbodflash_kernels._gpu.weight import GpuWeight
from turbodflash_kernels.linear import gpu as linear
from turbodflash_kernels.op import Array, Prologue
from turbodflash_kernels.top_logits.composed import compose


def refuse(
    device: GpuDevice,
    *,
    weight: GpuWeight,
    prologue: Prologue,
    softcap: float,
    count: int,
    width: int,
) -> str | None:
    return linear.refuse(device, weight=weight, prologue=prologue, bias=None)


def bind(
    device: GpuDevice,
    *,
    weight: GpuWeight,
    prologue: Prologue,
    softcap: float,
    count: int,
    width: int,
) -> Callable[[Array], tuple[Array, Array]]:
    return compose(
        device, weight=weight, prologue=prologue, softcap=softcap, count=count, width=width
    )
