"""Kernel of `tap` for Triton: a block of a row a program."""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl

from turbodflash_kernels._gpu.device import GpuDevice

BLOCK = 1024
WARPS = 4


@triton.jit
def _tap(x, stride, positions, ring, slots, width, BLOCK: tl.constexpr):
    i_row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < width
    slot = (tl.load(positions + i_row) % slots).to(tl.int64)
    b_x = tl.load(x + i_row * stride + columns, mask=inside, other=0.0)
    tl.store(ring + slot * width + columns, b_x, mask=inside)


def refuse(device: GpuDevice, *, ring: torch.Tensor) -> str | None:
    return None


def bind(device: GpuDevice, *, ring: torch.Tensor) -> Callable[[torch.Tensor, torch.Tensor], None]:
    slots, width = ring.shape

    def tap(x: torch.Tensor, positions: torch.Tensor) -> None:
        device.launch(
            _tap, (len(x), triton.cdiv(width, BLOCK)), x, x.stride(0), positions, ring, slots,
            width, warps=WARPS, stages=1, BLOCK=BLOCK,
        )  # fmt: skip

    return tap
