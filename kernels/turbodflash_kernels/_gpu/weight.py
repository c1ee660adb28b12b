"""Matrices as the GPU keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from turbodflash_kernels.op import Part
from turbodflash_kernels.planar import Format, dequantize

if TYPE_CHECKING:
    from turbodflash_kernels._gpu.device import GpuDevice


@dataclass(frozen=True, slots=True)
class GpuWeight:
    """values: float32 [rows, cols]."""

    values: torch.Tensor

    @property
    def rows(self) -> int:
        return self.values.shape[0]

    @property
    def cols(self) -> int:
        return self.values.shape[1]

    @property
    def nbytes(self) -> int:
        return self.values.nbytes


def pack(parts: Sequence[Part], cols: int, device: GpuDevice) -> GpuWeight:
    return GpuWeight(
        device.upload(np.concatenate([dequantize(p.decode(0, p.rows)) for p in parts]))
    )


def bytes_per_weight(format: Format) -> float:
    return 4.0
