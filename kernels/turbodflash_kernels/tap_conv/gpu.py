"""Kernel of `tap_conv` for Triton: a block of channels of one row a program."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import triton
import triton.language as tl

from turbodflash_kernels._gpu.device import GpuDevice

BLOCK = 256  # channels of a program
WARPS = 2


@triton.jit
def _convolve(
    base, width, x, x_stride, dynamic, dynamic_stride, residual, residual_stride, out,
    TAPS: tl.constexpr, GROUP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """base: [TAPS, width]; out: [rows, width]. The others may be columns of wider arrays."""
    i_row = tl.program_id(0).to(tl.int64)
    i_channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside, groups = i_channel < width, width // GROUP
    p_dynamic = dynamic + i_row * dynamic_stride + i_channel // GROUP
    total = tl.zeros([BLOCK], tl.float32)
    for tap in tl.static_range(TAPS):
        there = i_channel < tl.where(i_row >= tap, width, 0)
        b_weight = tl.load(base + tap * width + i_channel, mask=inside, other=0.0)
        b_weight += tl.load(p_dynamic + tap * groups, mask=inside, other=0.0)
        b_x = tl.load(x + (i_row - tap) * x_stride + i_channel, mask=there, other=0.0)
        # a tap before the first row adds nothing, whatever its weight is
        total = tl.where(there, tl.fma(b_weight, b_x, total), total)
    if residual is not None:
        p_residual = residual + i_row * residual_stride + i_channel
        total += tl.load(p_residual, mask=inside, other=0.0)
    tl.store(out + i_row * width + i_channel, total, mask=inside)


def refuse(device: GpuDevice, *, base: torch.Tensor, group: int) -> str | None:
    if base.shape[1] % group:
        return f"{base.shape[1]} channels are not whole groups of {group}"
    return None


def bind(device: GpuDevice, *, base: torch.Tensor, group: int) -> Callable[..., torch.Tensor]:
    taps, width = base.shape

    def tap_conv(
        x: torch.Tensor, dynamic: torch.Tensor, residual: torch.Tensor | None = None
    ) -> torch.Tensor:
        n = x.shape[0]
        out = device.scratch((n, width), np.float32)
        residual_stride = residual.stride(0) if residual is not None else 0
        device.launch(
            _convolve, (n, triton.cdiv(width, BLOCK)), base, width, x, x.stride(0),
            dynamic, dynamic.stride(0), residual, residual_stride, out,
            warps=WARPS, stages=1, TAPS=taps, GROUP=group, BLOCK=BLOCK,
        )  # fmt: skip
        return out

    return tap_conv
