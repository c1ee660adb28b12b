"""Packing beside whatever else is done: jobs on threads of their own.

A job in Python needs the interpreter at every step, which whoever builds the model holds most of
the time. So what machine code can do alone is gathered, and done a few megabytes at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Thread

import numpy as np
from numpy.typing import NDArray

from turbodflash_kernels._cpu.library import Library, function_at
from turbodflash_kernels._cpu.memory import keep_freed
from turbodflash_kernels._cpu.team import address

BATCH_BYTES = 8 << 20  # of the file


class Packing:
    """Jobs under way, until `wait`.

    threads: that work at once. One is whoever waits: before, that core is busy building the model.
    """

    def __init__(self, threads: int, library: Library) -> None:
        self._others, self._library = max(threads - 1, 1), library
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._workers: list[Thread] = []
        self._failed: list[BaseException] = []
        self._keeps = False
        self.idle = True
        self._clear()

    def submit(self, job: Callable[[], None]) -> None:
        """Do something in Python."""
        self.idle = False
        if not self._keeps:
            keep_freed(True)
            self._keeps = True
        self._start(job)

    def record(
        self, words: Sequence[int], rows: NDArray[np.uint8], taken: Callable[[], object]
    ) -> None:
        """Call a kernel, words[0], with what follows it; then `taken`.

        rows: what it reads, which is kept alive until then.
        """
        self.idle = False
        self._words += words
        self._kernels.add(words[0])
        self._rows.append(rows)
        self._taken.append(taken)
        self._nbytes += rows.nbytes
        if self._nbytes >= BATCH_BYTES:
            self._send()

    def wait(self) -> None:
        """Help until all is done; what went wrong with one is raised, and the rest is left."""
        self.idle = True
        self._send()
        workers, self._workers = self._workers, []
        if workers:
            for _ in range(len(workers) + 1):
                self._jobs.put(None)
            self._work()
            for worker in workers:
                worker.join()
        if self._keeps:
            keep_freed(False)
            self._keeps = False
        failed, self._failed = self._failed, []
        if failed:
            raise failed[0]

    def _start(self, job: Callable[[], None]) -> None:
        self._jobs.put(job)
        if len(self._workers) < self._others:
            name = f"turbodflash-pack-{len(self._workers)}"
            self._workers.append(Thread(target=self._work, name=name, daemon=True))
            self._workers[-1].start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            if self._failed:
                continue
            try:
                job()
            except BaseException as error:
                self._failed.append(error)

    def _send(self) -> None:
        if not self._rows:
            return
        each = self._library.address("_cpu.unpack_kernels", "each")
        kernels, call = {each, *self._kernels}, function_at(each, 3)
        words, rows, taken = np.array(self._words, np.int64), self._rows, self._taken
        self._clear()

        def run() -> None:
            for kernel in kernels:
                self._library.wait(kernel)
            call(address(words), len(rows), 0)
            for told in taken:
                told()

        self._start(run)

    def _clear(self) -> None:
        self._words: list[int] = []
        self._kernels: set[int] = set()
        self._rows: list[NDArray[np.uint8]] = []
        self._taken: list[Callable[[], object]] = []
        self._nbytes = 0
