"""Kernel of `add` for Triton: a group of a row a program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from turbodflash_kernels._gpu.device import GpuDevice
from turbodflash_kernels.op import RmsNorm

BLOCK = 2048  # numbers of a group that are taken at a time: the order of a norm's sum depends on it
WARPS = 8
MOST_PARTS = 4


@triton.jit
def _factor(x, weight, eps, width, BLOCK: tl.constexpr):
    """What a group is multiplied with for its norm; 1 without one."""
    if weight is None:
        return 1.0
    squares = tl.zeros([BLOCK], tl.float32)
    for start in range(0, width, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        b_x = tl.load(x + columns, mask=columns < width, other=0.0)
        squares = tl.fma(b_x, b_x, squares)
    return 1.0 / tl.sqrt_rn(tl.sum(squares, axis=0) / width + eps)


@triton.jit
def _normed(x, weight, factor, columns, inside):
    b_x = tl.load(x + columns, mask=inside, other=0.0)
    if weight is not None:
        b_x = b_x * factor * tl.load(weight + columns, mask=inside, other=0.0)
    return b_x


@triton.jit
def _add(
    out, width, scale, x0, stride0, weight0, eps0, x1, stride1, weight1, eps1,
    x2, stride2, weight2, eps2, x3, stride3, weight3, eps3, BLOCK: tl.constexpr,
):  # fmt: skip
    """out: [rows, groups * width]; parts may be columns of wider arrays."""
    i_row, i_group = tl.program_id(0).to(tl.int64), tl.program_id(1)
    out += (i_row * tl.num_programs(1) + i_group) * width
    x0 += i_row * stride0 + i_group * width
    factor0 = _factor(x0, weight0, eps0, width, BLOCK)
    if x1 is not None:
        x1 += i_row * stride1 + i_group * width
        factor1 = _factor(x1, weight1, eps1, width, BLOCK)
    if x2 is not None:
        x2 += i_row * stride2 + i_group * width
        factor2 = _factor(x2, weight2, eps2, width, BLOCK)
    if x3 is not None:
        x3 += i_row * stride3 + i_group * width
        factor3 = _factor(x3, weight3, eps3, width, BLOCK)
    for start in range(0, width, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        inside = columns < width
        total = _normed(x0, weight0, factor0, columns, inside)
        if x1 is not None:
            total += _normed(x1, weight1, factor1, columns, inside)
        if x2 is not None:
            total += _normed(x2, weight2, factor2, columns, inside)
        if x3 is not None:
            total += _normed(x3, weight3, factor3, columns, inside)
        tl.store(out + columns, total * scale, mask=inside)


def refuse(device: GpuDevice, *, norms: tuple[RmsNorm | None, ...], **others: object) -> str | None:
    if len(norms) > MOST_PARTS:
        return f"{len(norms)} parts are over {MOST_PARTS}"
    return None


def bind(
    device: GpuDevice, *, norms: tuple[RmsNorm | None, ...], scale: float = 1.0, groups: int = 1
) -> Callable[..., torch.Tensor]:
    def add(*parts: torch.Tensor) -> torch.Tensor:
        n, width = parts[0].shape
        out = device.scratch((n, width), np.float32)
        words: list[Any] = []
        for part, norm in zip(parts, norms, strict=True):
            words += (part, part.stride(0), *((norm.weight, norm.eps) if norm else (None, 0.0)))
        words += (None, 0, None, 0.0) * (MOST_PARTS - len(parts))
        device.launch(
            _add, (n, groups), out, width // groups, float(scale), *words,
            warps=WARPS, stages=1, BLOCK=BLOCK,
        )  # fmt: skip
        return out

    return add
