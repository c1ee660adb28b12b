"""The memory of a recurrent layer on the CPU.

S lies in blocks of sixteen columns, [value_heads, blocks, head_dim of keys, 16]: a block is what
one task works on, and it is small enough for the nearest cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turbodflash_kernels._cpu.memory import HUGE_PAGE, huge
from turbodflash_kernels._cpu.team import aligned
from turbodflash_kernels.errors import NoKernel
from turbodflash_kernels.op import DeltaShape

Floats = NDArray[np.float32]
COLUMNS = 16


@dataclass(frozen=True, slots=True, eq=False)
class CpuState:
    """As the protocol `State` of devices. window: [taps - 1, channels]. waiting: pending rows.

    last_round: i32[1].
    """

    shape: DeltaShape
    counts: NDArray[np.int32]
    window: Floats
    s: Floats
    waiting: Floats
    last_round: NDArray[np.int32]
    flush: Callable[[], None]

    @classmethod
    def empty(
        cls, shape: DeltaShape, counts: NDArray[np.int32], room: int, flush: Callable[[], None]
    ) -> CpuState:
        if shape.head_dim % COLUMNS:
            raise NoKernel(f"heads of {shape.head_dim} are not whole blocks of {COLUMNS}")
        blocks = shape.head_dim // COLUMNS
        return cls(
            shape,
            counts,
            _zeros(*shape.window),
            _zeros(shape.value_heads, blocks, shape.head_dim, COLUMNS),
            _zeros(room, shape.pending),
            aligned(1, np.int32),
            flush,
        )

    @property
    def room(self) -> int:
        return len(self.waiting)

    @property
    def nbytes(self) -> int:
        return self.window.nbytes + self.s.nbytes + self.waiting.nbytes

    def clear(self) -> None:
        self.flush()
        self.window.fill(0)
        self.s.fill(0)

    def read(self) -> tuple[Floats, Floats]:
        self.flush()
        heads, _, dim, _ = self.s.shape
        return self.window.copy(), self.s.swapaxes(1, 2).reshape(heads, dim, dim)

    def put(self, window: Floats, s: Floats) -> None:
        self.flush()
        heads, blocks, dim, columns = self.s.shape
        self.window[:] = window
        self.s[:] = s.reshape(heads, dim, blocks, columns).swapaxes(1, 2)

    def pending(self, count: int) -> Floats:
        self.flush()
        return self.waiting[:count].copy()

    def put_pending(self, rows: Floats) -> None:
        self.flush()
        self.waiting[: len(rows)] = rows

    def gather(self, rows: Sequence[int]) -> None:
        self.flush()
        self.waiting[: len(rows)] = self.waiting[list(rows)]

    @property
    def seen(self) -> int:
        self.flush()
        return int(self.last_round[0])

    def save(self, rows: int) -> tuple[Floats, Floats, Floats, int]:
        self.flush()
        return self.window.copy(), self.s.copy(), self.waiting[:rows].copy(), self.seen

    def restore(self, saved: tuple[Floats, Floats, Floats, int]) -> None:
        self.flush()
        self.window[:], self.s[:], rows, self.last_round[0] = saved
        self.waiting[: len(rows)] = rows


def _zeros(*shape: int) -> Any:
    size = 4 * prod(shape)
    memory = huge(size) if size >= HUGE_PAGE else aligned(size, np.uint8)
    return memory.view(np.float32).reshape(shape)
