"""The op made of the three that say what it means, for any device."""

from __future__ import annotations

from collections.abc import Callable

from turbodflash_kernels.device import Device, Weight
from turbodflash_kernels.op import Array, Prologue


def compose(
    device: Device,
    *,
    weight: Weight,
    prologue: Prologue,
    softcap: float,
    count: int,
    width: int,
) -> Callable[[Array], tuple[Array, Array]]:
    """All logits, and the largest of them. Raises NoKernel as `Device.bind` does."""
    linear = device.bind("linear", weight=weight, prologue=prologue, bias=None)
    cap = device.bind("softcap", cap=softcap) if softcap else None
    largest = device.bind("largest", count=count)

    def top_logits(x: Array) -> tuple[Array, Array]:
        logits = linear(x)[:, :width]
        values, ids = largest(cap(logits) if cap else logits)
        return values, ids

    return top_logits
