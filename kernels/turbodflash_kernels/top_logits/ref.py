"""The meaning of the op, in the precision of x."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from turbodflash_kernels._reference import ReferenceDevice, ReferenceWeight
from turbodflash_kernels.linear import ref as linear
from turbodflash_kernels.op import Array, Prologue
from turbodflash_kernels.top_logits.composed import compose


def refuse(
    device: ReferenceDevice, *, weight: ReferenceWeight, prologue: Prologue, **rest: Any
) -> str | None:
    return linear.refuse(device, weight=weight, prologue=prologue, bias=None)


def bind(device: ReferenceDevice, **statics: Any) -> Callable[[Array], tuple[Array, Array]]:
    return compose(device, **statics)
