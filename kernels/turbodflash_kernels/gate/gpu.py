"""Kernel of `gate` for Triton: a block of a row a program."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import triton
import triton.language as tl

from turbodflash_kernels._gpu.curves import activated
from turbodflash_kernels._gpu.device import GpuDevice
from turbodflash_kernels.op import Activation

BLOCK = 1024
WARPS = 4


@triton.jit
def _gate(
    gate, gate_stride, x, x_stride, residual, residual_stride, out, width,
    ACTIVATION: tl.constexpr, EACH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """out: [rows, width]. EACH: every number has its gate; else a row has one."""
    i_row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < width
    gate += i_row * gate_stride
    b_gate = tl.load(gate + columns, mask=inside, other=0.0) if EACH else tl.load(gate)
    b_x = tl.load(x + i_row * x_stride + columns, mask=inside, other=0.0)
    b_x = activated(b_gate, ACTIVATION) * b_x
    if residual is not None:
        b_x += tl.load(residual + i_row * residual_stride + columns, mask=inside, other=0.0)
    tl.store(out + i_row * width + columns, b_x, mask=inside)


def refuse(device: GpuDevice, *, activation: Activation) -> str | None:
    return None


def bind(device: GpuDevice, *, activation: Activation) -> Callable[..., torch.Tensor]:
    def gate(
        gate: torch.Tensor, x: torch.Tensor, residual: torch.Tensor | None = None
    ) -> torch.Tensor:
        n, width = x.shape
        out = device.scratch((n, width), np.float32)
        residual_stride = 0 if residual is None else residual.stride(0)
        device.launch(
            _gate, (n, triton.cdiv(width, BLOCK)), gate, gate.stride(0), x, x.stride(0),
            residual, residual_stride, out, width, warps=WARPS, stages=1,
            ACTIVATION=activation, EACH=gate.shape[1] == width, BLOCK=BLOCK,
        )  # fmt: skip
        return out

    return gate
