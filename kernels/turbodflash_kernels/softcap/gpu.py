"""Kernel of `softcap` for Triton: a block of a row a program."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import triton
import triton.language as tl

from turbodflash_kernels._gpu.curves import tanh
from turbodflash_kernels._gpu.device import GpuDevice

BLOCK = 1024
WARPS = 4


@triton.jit
def _softcap(x, stride, out, width, cap, BLOCK: tl.constexpr):
    """out: [rows, width]."""
    i_row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < width
    b_x = tl.load(x + i_row * stride + columns, mask=inside, other=0.0)
    tl.store(out + i_row * width + columns, cap * tanh(b_x / cap), mask=inside)


def refuse(device: GpuDevice, *, cap: float) -> str | None:
    return None


def bind(device: GpuDevice, *, cap: float) -> Callable[[torch.Tensor], torch.Tensor]:
    def softcap(x: torch.Tensor) -> torch.Tensor:
        n, width = x.shape
        out = device.scratch((n, width), np.float32)
        device.launch(
            _softcap, (n, triton.cdiv(width, BLOCK)), x, x.stride(0), out, width, float(cap),
            warps=WARPS, stages=1, BLOCK=BLOCK,
        )  # fmt: skip
        return out

    return softcap
