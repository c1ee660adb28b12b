"""Activations as matrices multiply them: normed or gated, as int8 codes or as they are."""

from __future__ import annotations

import numpy as np

from turbodflash_kernels._cpu import layout
from turbodflash_kernels._cpu.device import CpuDevice
from turbodflash_kernels._cpu.team import address
from turbodflash_kernels._cpu.words import EACH_THREAD, float_word
from turbodflash_kernels.op import Array, Gated, Prologue, RmsNorm

PREPARED_PER_TASK = 2
PRIVATE_ROWS = 2


class Codes:
    """Activations [n, k] as int8 codes, with what they mean per block of 32 (see rows.py).

    Of a row or two every thread makes its own: that is sooner done than waited for.
    spare: whoever reads them may go so many rows beyond the last.
    """

    def __init__(self, device: CpuDevice, n: int, k: int, spare: int = 0) -> None:
        self.k, self.private = k, n <= PRIVATE_ROWS and n * k <= layout.PRIVATE_CODES
        if self.private:
            return
        rows = layout.filled(n) + spare
        self.codes = device.scratch((rows, k), np.int8)
        self.info = device.scratch((rows, k // layout.BLOCK, layout.INFO_WORDS), np.int32)

    def words(self) -> tuple[int, int, int, int]:
        """codes, code_stride, info, info_stride; codes and info are 0 if private."""
        if self.private:
            return (0, self.k, 0, self.k)
        codes, info = self.codes, self.info
        return (address(codes), codes.strides[0], address(info), info.strides[0])


def preparation(device: CpuDevice, prologue: Prologue, quantised: bool) -> int:
    """The kernel that does it."""
    kind = "none"
    if isinstance(prologue, RmsNorm):
        kind = "norm"
    elif isinstance(prologue, Gated):
        kind = prologue.activation
    return device.kernel("linear", "prepare", kind, quantised)


def quantised(
    device: CpuDevice, kernel: int, prologue: Prologue, x: Array, k: int, spare: int = 0
) -> Codes:
    """Record it for rows x, of which the matrix has k inputs."""
    codes = Codes(device, len(x), k, spare)
    _record(device, kernel, prologue, x, k, codes.words(), codes.private)
    return codes


def kept(device: CpuDevice, kernel: int, prologue: Prologue, x: Array, k: int) -> Array:
    """The same as float32 [n, k]."""
    out = device.scratch((len(x), k), np.float32)
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
