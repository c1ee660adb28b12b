"""The memory of a recurrent layer on the reference device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from turbodflash_kernels.op import DeltaShape

if TYPE_CHECKING:
    from turbodflash_kernels._reference import ReferenceDevice

Floats = NDArray[Any]
Memory = tuple[Floats, Floats]


@dataclass(slots=True)
class ReferenceState:
    """As the protocol `State` of devices, in the device's precision.

    memory: window [taps - 1, channels] and S [value_heads, head_dim, head_dim]; never written to,
    only replaced. seen: the last round.
    """

    shape: DeltaShape
    counts: NDArray[np.int32]
    memory: Memory
    waiting: Floats
    seen: int = field(default=0)

    @classmethod
    def empty(
        cls, device: ReferenceDevice, shape: DeltaShape, counts: NDArray[np.int32], room: int
    ) -> ReferenceState:
        window = device.upload(np.zeros(shape.window, np.float32))
        s = device.upload(np.zeros(shape.s, np.float32))
        waiting = device.empty((room, shape.pending), np.float32)
        return cls(shape, counts, (window, s), waiting)

    @property
    def room(self) -> int:
        return len(self.waiting)

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in (*self.memory, self.waiting))

    def clear(self) -> None:
        window, s = self.memory
        self.memory = np.zeros_like(window), np.zeros_like(s)

    def read(self) -> Memory:
        return self.memory

    def put(self, window: Floats, s: Floats) -> None:
        precision = self.waiting.dtype
        self.memory = window.astype(precision), s.astype(precision)

    def pending(self, count: int) -> Floats:
        return self.waiting[:count].copy()

    def put_pending(self, rows: Floats) -> None:
        self.waiting[: len(rows)] = rows

    def gather(self, rows: Sequence[int]) -> None:
        self.waiting[: len(rows)] = self.waiting[list(rows)]

    def save(self, rows: int) -> tuple[Memory, Floats, int]:
        return self.memory, self.pending(rows), self.seen

    def restore(self, saved: tuple[Memory, Floats, int]) -> None:
        self.memory, rows, self.seen = saved
        self.put_pending(rows)
