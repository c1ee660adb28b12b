"""A team of threads that plays tapes: lists of kernel calls with a barrier after each.

Between tapes the others spin for a few milliseconds, so that a token's three hundred kernels cost
no system call; then they sleep, so that an idle chat costs no processor time.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turbodflash_kernels._cpu.library import Library, function_at
from turbodflash_kernels._cpu.words import (
    ACTIVE,
    EPOCH,
    GENERATION,
    PARKED,
    RECORD_WORDS,
    RECORDS,
    SCRATCH,
    SCRATCH_EACH,
    TAPE,
    THREAD_BYTES,
    THREADS,
    YIELD,
)

SCRATCH_BYTES = 1 << 20
_HEADER = object.__basicsize__
PATIENCE = 60_000  # spins before a thread sleeps: two to four milliseconds


def aligned(count: int, dtype: Any, alignment: int = 64) -> NDArray[Any]:
    """Zeros that start on a cache line (untouched memory: the system gives it on first use)."""
    size = count * np.dtype(dtype).itemsize
    block = np.zeros(size + alignment, np.uint8)
    start = -address(block) % alignment
    return block[start : start + size].view(dtype)


def address(array: NDArray[Any]) -> int:
    """Where its numbers are.

    numpy promises where in an array's structure that stands: first behind what all objects begin
    with. To ask for `__array_interface__` takes seven times as long, and recording a pass asks
    hundreds of times.
    """
    return ctypes.c_int64.from_address(id(array) + _HEADER).value


class Tape:
    """Records to play, one after the other."""

    __slots__ = ("_words", "address", "records")

    def __init__(self, words: Sequence[int]) -> None:
        self._words = np.array(words, np.int64)
        self.address = address(self._words)
        self.records = len(words) // RECORD_WORDS


class Team:
    """`threads` threads, the caller's included."""

    def __init__(self, threads: int, library: Library) -> None:
        self.threads = threads
        self._shared = aligned((THREADS + THREAD_BYTES * threads) // 8, np.int64)
        self._words = self._shared.data  # read and written with less ado than an array
        self._scratch = aligned(threads * SCRATCH_BYTES, np.uint8)
        self._base = address(self._shared)
        self._put(SCRATCH, address(self._scratch))
        self._put(SCRATCH_EACH, SCRATCH_BYTES)
        self._put(GENERATION, 1)  # words of 0 are of another
        self._put(YIELD, _yield_address())
        self._play = library.function(2, "_cpu.team_kernels", "play")
        self._wake = [threading.Event() for _ in range(threads)]
        if threads > 1:
            stand_by = library.address("_cpu.team_kernels", "stand_by")
            for thread in range(1, threads):
                threading.Thread(
                    target=_serve,
                    args=(self._shared, library, stand_by, thread, self._wake[thread]),
                    name=f"turbodflash-{thread}",
                    daemon=True,
                ).start()
        weakref.finalize(self, _dismiss, self._shared, self._wake)

    def run(self, tape: Tape, threads: int) -> None:
        """Play a tape with that many threads, or with all; returns when all is done."""
        self._put(TAPE, tape.address)
        self._put(RECORDS, tape.records)
        self._put(ACTIVE, min(threads, self.threads))
        self._words[EPOCH // 8] += 1
        self._wake_parked()
        self._play(self._base, 0)

    def _put(self, offset: int, value: int) -> None:
        self._words[offset // 8] = value

    def _wake_parked(self) -> None:
        for thread in range(1, self.threads):
            if self._words[(THREADS + THREAD_BYTES * thread + PARKED) // 8]:
                self._wake[thread].set()


def _serve(
    shared: NDArray[np.int64], library: Library, kernel: int, thread: int, wake: threading.Event
) -> None:
    """The life of a helping thread. It must not keep the team alive."""
    base, parked = address(shared), (THREADS + THREAD_BYTES * thread + PARKED) // 8
    library.wait(kernel)
    stand_by = function_at(kernel, 3)
    while shared[RECORDS // 8] >= 0:
        stand_by(base, thread, PATIENCE)
        if shared[parked]:
            wake.wait()
            wake.clear()
            shared[parked] = 0


def _dismiss(shared: NDArray[np.int64], wake: list[threading.Event]) -> None:
    shared[RECORDS // 8] = -1
    shared[EPOCH // 8] += 1
    for event in wake:
        event.set()


def _yield_address() -> int:
    """The system's "let another thread have this core"."""
    if sys.platform == "win32":
        function = ctypes.windll.kernel32.SwitchToThread
    else:
        function = ctypes.CDLL(None).sched_yield
    return ctypes.cast(function, ctypes.c_void_p).value or 0
