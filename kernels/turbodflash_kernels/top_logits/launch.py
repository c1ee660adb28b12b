"""How `top_logits` is recorded on the CPU device."""

from __future__ import annotations

from collections.abc import Callable

from turbodflash_kernels._cpu.device import CpuDevice
from turbodflash_kernels._cpu.weight import CpuWeight
from turbodflash_kernels.linear import launch as linear
from turbodflash_kernels.op import Array, Prologue
from turbodflash_kernels.top_logits.composed import compose


def refuse(
    device: CpuDevice,
    *,
    weight: CpuWeight,
    prologue: Prologue,
    softcap: float,
    count: int,
    width: int,
) -> str | None:
    return linear.refuse(device, weight=weight, prologue=prologue, bias=None)


def bind(
    device: CpuDevice,
    *,
    weight: CpuWeight,
    prologue: Prologue,
    softcap: float,
    count: int,
    width: int,
) -> Callable[[Array], tuple[Array, Array]]:
    return compose(
        device, weight=weight, prologue=prologue, softcap=softcap, count=count, width=width
    )
