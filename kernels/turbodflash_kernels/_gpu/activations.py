"""What matrices are multiplied with: the prologue, then numbers that tensor cores take.

float16, in units of a power of two per row and segment of the inputs: no row overflows, and none
loses what is small beside its largest number by more than 2^-28 of that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl

from turbodflash_kernels._gpu.curves import activated
from turbodflash_kernels.op import Gated, Prologue, RmsNorm

if TYPE_CHECKING:
    from turbodflash_kernels._gpu.device import GpuDevice


@triton.jit
def _activated(x, at, gap, ACTIVATION: tl.constexpr, inside):
    """x, or act(gate) * up where the gate lies at x and up `gap` further."""
    value = tl.load(x + at, mask=inside, other=0.0)
    if ACTIVATION == "":
        return value
    return activated(value, ACTIVATION) * tl.load(x + gap + at, mask=inside, other=0.0)


@triton.jit
def _prepare(
    x,
    norm,
    out,
    units,
    x_stride,
    out_stride,
    k,
    segment,
    eps,
    NORM: tl.constexpr,
    ACTIVATION: tl.constexpr,
    HALF: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A segment of a row: out [rows, out_stride], units f32 [rows, segments].

    Without HALF the numbers stay float32 and units are 1.
    """
    row = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1) * segment
    last = tl.minimum(first + segment, out_stride)
    x += row * x_stride
    lanes = tl.arange(0, BLOCK)
    rstd = 1.0
    if NORM:
        squares = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, k, BLOCK):
            value = tl.load(x + start + lanes, mask=start + lanes < k, other=0.0)
            squares += value * value
        rstd = 1 / tl.sqrt_rn(tl.sum(squares, axis=0) / k + eps)
    inverse, unit = 1.0, 1.0
    if HALF:
        largest = tl.zeros((BLOCK,), tl.float32)
        for start in range(first, last, BLOCK):
            at = start + lanes
            value = _activated(x, at, k, ACTIVATION, at < k)
            if NORM:
                value = value * rstd * tl.load(norm + at, mask=at < k, other=0.0)
            largest = tl.maximum(largest, tl.abs(value))
        exponent = tl.max(largest, axis=0).to(tl.int32, bitcast=True) >> 23
        exponent = tl.minimum(tl.maximum(exponent, 14), 254)
        inverse = ((267 - exponent) << 23).to(tl.float32, bitcast=True)
        unit = ((exponent - 13) << 23).to(tl.float32, bitcast=True)
    tl.store(units + row * tl.num_programs(1) + tl.program_id(1), unit)
    for start in range(first, last, BLOCK):
        at = start + lanes
        value = _activated(x, at, k, ACTIVATION, at < k)
        if NORM:
            value = value * rstd * tl.load(norm + at, mask=at < k, other=0.0)
        value = (value * inverse).to(out.dtype.element_ty)
        tl.store(out + row * out_stride + at, value, mask=at < last)


class Prepared(NamedTuple):
    """x: [n, inputs]. units: f32 [n, segments]."""

    x: torch.Tensor
    units: torch.Tensor


def prepare(
    device: GpuDevice,
    x: torch.Tensor,
    prologue: Prologue,
    cols: int,
    inputs: int,
    segment: int,
    half: bool,
) -> Prepared:
    n, segments = x.shape[0], triton.cdiv(inputs, segment)
    out = device.scratch((n, inputs), np.float16 if half else np.float32)
    units = device.scratch((n, segments), np.float32)
    norm = prologue if isinstance(prologue, RmsNorm) else None
    device.launch(
        _prepare,
        (n, segments),
        x,
        norm.weight if norm else None,
        out,
        units,
        x.stride(0),
        inputs,
        cols,
        segment,
        float(norm.eps) if norm else 0.0,
        warps=8,
        stages=1,
        NORM=norm is not None,
        ACTIVATION=prologue.activation if isinstance(prologue, Gated) else "",
        HALF=half,
        BLOCK=2048,
    )
    return Prepared(out, units)
