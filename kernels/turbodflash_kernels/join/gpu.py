"""Kernel of `join` for Triton: one part, a row a program."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import triton
import triton.language as tl

from turbodflash_kernels._gpu.device import GpuDevice
from turbodflash_kernels.op import RmsNorm

BLOCK = 1024  # numbers of a row that are taken at a time: the order of a norm's sum depends on it
WARPS = 4


@triton.jit
def _part(x, x_stride, width, weight, eps, out, out_stride, BLOCK: tl.constexpr):
    """out[row] = x[row], normed if there is a weight."""
    i_row = tl.program_id(0).to(tl.int64)
    x += i_row * x_stride
    out += i_row * out_stride
    scale = 1.0
    if weight is not None:
        squares = tl.zeros([BLOCK], tl.float32)
        for start in range(0, width, BLOCK):
            columns = start + tl.arange(0, BLOCK)
            b_x = tl.load(x + columns, mask=columns < width, other=0.0)
            squares = tl.fma(b_x, b_x, squares)
        scale = 1.0 / tl.sqrt_rn(tl.sum(squares, axis=0) / width + eps)
    for start in range(0, width, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        b_x = tl.load(x + columns, mask=columns < width, other=0.0)
        if weight is not None:
            b_x = b_x * scale * tl.load(weight + columns, mask=columns < width, other=0.0)
        tl.store(out + columns, b_x, mask=columns < width)


def refuse(device: GpuDevice, *, norms: tuple[RmsNorm | None, ...]) -> str | None:
    return None


def bind(device: GpuDevice, *, norms: tuple[RmsNorm | None, ...]) -> Callable[..., torch.Tensor]:
    def join(*parts: torch.Tensor) -> torch.Tensor:
        n = parts[0].shape[0]
        out = device.scratch((n, sum(part.shape[1] for part in parts)), np.float32)
        column = 0
        for part, norm in zip(parts, norms, strict=True):
            width = part.shape[1]
            place = out[:, column : column + width]
            weight, eps = (norm.weight, norm.eps) if norm else (None, 0.0)
            device.launch(
                _part, (n,), part, part.stride(0), width, weight, eps, place, place.stride(0),
                warps=WARPS, stages=1, BLOCK=BLOCK,
            )  # fmt: skip
            column += width
        return out

    return join
