"""Activations as matrices multiply them: normed or gated, as int8 codes or as they are."""

from __future__ import annotations

import numpy as np

from turbodflash_kernels._cpu import layout
from turbodflash_kernels._cpu.device import CpuDevice
from turbodflash_kernels._cpu.memory import LINE
from turbodflash_kernels._cpu.team import address
from turbodflash_kernels._cpu.words import EACH_THREAD, float_word
from turbodflash_kernels.op import Array, Gated, Prologue, RmsNorm

PREPARED_PER_TASK = 2


class Codes:
    """Activations [n, k] as integers: a cache line per row and block of 32 (see rows.py).

    Lines lie in panels of rows, block by block: so a product reads the same block of many rows as
    one stream. Of a row or two every thread makes its own: that is sooner done than waited for.
    panel: most rows of one; of 1, all rows are apart and can be read from anywhere on.
    spare: whoever reads them may go so many rows beyond the last. shared: no thread has its own.
    """

    def __init__(
        self,
        device: CpuDevice,
        n: int,
        k: int,
        panel: int = layout.PANEL,
        spare: int = 0,
        shared: bool = False,
    ) -> None:
        nbytes = LINE * (k // layout.BLOCK)
        self.private = n <= layout.PRIVATE_ROWS and not shared
        self.panel = 1 if self.private else min(panel, layout.filled(n))
        self.row_bytes = nbytes if self.panel > 1 else layout.row_stride(nbytes)
        if not self.private:
            rows = -(-layout.filled(n) // self.panel) * self.panel + spare
            self.lines = device.scratch((rows, self.row_bytes), np.uint8)

    def words(self) -> tuple[int, int, int, int]:
        """lines, 0 if private, row_bytes, row_stride, block_stride: see `linear`."""
        lines = 0 if self.private else address(self.lines)
        row_stride = LINE if self.panel > 1 else self.row_bytes
        return lines, self.row_bytes, row_stride, LINE * self.panel


def preparation(device: CpuDevice, prologue: Prologue, quantised: bool) -> int:
    """The kernel that does it."""
    kind = "none"
    if isinstance(prologue, RmsNorm):
        kind = "norm"
    elif isinstance(prologue, Gated):
        kind = prologue.activation
    return device.kernel("linear", "prepare", kind, quantised, device.isa)


def quantised(
    device: CpuDevice,
    kernel: int,
    prologue: Prologue,
    x: Array,
    k: int,
    panel: int = layout.PANEL,
    spare: int = 0,
) -> Codes:
    """Record it for rows x, of which the matrix has k inputs."""
    codes = Codes(device, len(x), k, panel, spare)
    _record(device, kernel, prologue, x, k, (*codes.words(), codes.panel), codes.private)
    return codes


def kept(device: CpuDevice, kernel: int, prologue: Prologue, x: Array, k: int) -> Array:
    """The same as float32 [n, k]."""
    out = device.scratch((len(x), layout.row_stride(4 * k) // 4), np.float32)[:, :k]
    _record(device, kernel, prologue, x, k, (address(out), out.strides[0]))
    return out


def _record(
    device: CpuDevice,
    kernel: int,
    prologue: Prologue,
    x: Array,
    k: int,
    out: tuple[int, ...],
    private: bool = False,
) -> None:
    n = len(x)
    norm, eps = 0, 0
    if isinstance(prologue, RmsNorm):
        norm, eps = address(prologue.weight), float_word(prologue.eps)
        device.keep(prologue.weight)
    device.keep(x)
    words = (address(x), x.strides[0], k, norm, eps, PREPARED_PER_TASK, n)
    tasks = EACH_THREAD if private else -(-n // PREPARED_PER_TASK)
    device.record(kernel, tasks, *words, *out, rows=n)
