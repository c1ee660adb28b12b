"""The memory of a recurrent layer on the GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from turbodflash_kernels.op import DeltaShape

if TYPE_CHECKING:
    from turbodflash_kernels._gpu.device import GpuDevice

Floats = NDArray[np.float32]


class Saved(NamedTuple):
    """A copy of what a state held."""

    window: torch.Tensor
    s: torch.Tensor
    last_round: torch.Tensor
    waiting: torch.Tensor


@dataclass(frozen=True, slots=True)
class GpuState:
    """As the protocol `State` of devices: tensors that stay where they are, for graphs know them.

    last_round: int32[1].
    """

    shape: DeltaShape
    counts: torch.Tensor
    window: torch.Tensor
    s: torch.Tensor
    waiting: torch.Tensor
    last_round: torch.Tensor
    device: GpuDevice

    @property
    def room(self) -> int:
        return len(self.waiting)

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in (self.window, self.s, self.waiting))

    def clear(self) -> None:
        self.window.zero_()
        self.s.zero_()

    def read(self) -> tuple[Floats, Floats]:
        window, s = self.device.read_all([self.window, self.s])
        return window.copy(), s.copy()

    def put(self, window: Floats, s: Floats) -> None:
        self.device.write(self.window, window)
        self.device.write(self.s, s)

    def pending(self, count: int) -> Floats:
        found: Floats = self.device.read(self.waiting[:count]).copy()
        return found

    def put_pending(self, rows: Floats) -> None:
        self.device.write(self.waiting[: len(rows)], rows)

    def gather(self, rows: Sequence[int]) -> None:
        self.waiting[: len(rows)] = self.waiting[list(rows)]  # what is read is a copy

    @property
    def seen(self) -> int:
        return int(self.device.read(self.last_round)[0])

    def save(self, rows: int) -> Saved:
        parts = (self.window, self.s, self.last_round, self.waiting[:rows])
        return Saved(*(part.clone() for part in parts))

    def restore(self, saved: Saved) -> None:
        parts = (self.window, self.s, self.last_round, self.waiting[: len(saved.waiting)])
        for part, value in zip(parts, saved, strict=True):
            part.copy_(value)


def make(device: GpuDevice, shape: DeltaShape, counts: torch.Tensor, room: int) -> GpuState:
    return GpuState(
        shape,
        counts,
        device.zeros(shape.window, np.float32),
        device.zeros(shape.s, np.float32),
        device.empty((room, shape.pending), np.float32),
        device.zeros((1,), np.int32),
        device,
    )
