"""Kernels compiled by other processes, side by side, while they are still being asked for.

Python and Numba write IR on one core only, however many threads there are. So processes do it, and
until one is done, whoever asked has the address of a few instructions that go on to it.
"""

from __future__ import annotations

import ctypes
import pickle
import subprocess
import sys
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Condition, Event, Thread
from typing import Any

from turbodflash_kernels._cpu.worker import SIZE_BYTES, Job

_START = (
    "import sys; sys.path[:] = {path!r}; from turbodflash_kernels._cpu import worker; worker.main()"
)

Obtain = Callable[[Job, Callable[[Job], bytes]], bytes]

PATIENCE = 10.0  # seconds that a process waits for something to do
ARGUMENTS = 12  # of any kernel, at most

_THUNK = """
define void @{symbol}({parameters}) {{
  %kernel = load ptr, ptr inttoptr (i64 {slot} to ptr)
  musttail call void %kernel({parameters})
  ret void
}}
"""


class Promise:
    """A kernel that is being compiled.

    finished: that is over; code: what came of it, None = whoever needs it must compile it.
    slot: the kernel's address, 0 = not yet known.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self.finished = Event()
        self.code: bytes | None = None
        self.slot = ctypes.c_int64(0)

    def thunk(self, symbol: str) -> str:
        """IR of a function that goes on to the kernel, whose address must be known by then."""
        parameters = ", ".join(f"i64 %a{i}" for i in range(ARGUMENTS))
        return _THUNK.format(symbol=symbol, parameters=parameters, slot=ctypes.addressof(self.slot))


class Helpers:
    """`count` processes, until `close`, or as long as there is something to do.

    obtain: gives a job's code, called with the job and what compiles it.
    """

    def __init__(self, count: int, obtain: Obtain) -> None:
        self._obtain, self._left = obtain, count
        self._changed = Condition()
        self._jobs: list[Promise] = []
        self._closed = False
        self._seen: set[str] = set()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._end = weakref.finalize(self, _kill, self._processes)  # when Python ends
        for index in range(count):
            name = f"turbodflash-compile-{index}"
            Thread(target=self._serve, name=name, daemon=True).start()

    def promise(self, job: Job) -> Promise:
        """Ask for a kernel. Its promise will be finished, whatever becomes of the processes."""
        promise = Promise(job)
        with self._changed:
            if self._left and not self._closed:
                self._jobs.append(promise)
                self._changed.notify()
            else:
                promise.finished.set()
        return promise

    def close(self) -> None:
        """End all processes; what is not finished then is finished without code."""
        with self._changed:
            self._closed = True
            self._give_up()
            self._changed.notify_all()
        self._end()

    def _give_up(self) -> None:
        for promise in self._jobs:
            promise.finished.set()
        self._jobs.clear()

    def _serve(self) -> None:
        """The life of a thread with a process of its own."""
        try:
            with self._start() as process:
                try:
                    self._feed(process)
                finally:
                    process.kill()
        except (OSError, EOFError):
            pass  # it could not be started, or did not live: others do its work
        finally:
            with self._changed:
                self._left -= 1
                if not self._left:
                    self._give_up()

    def _start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-c", _START.format(path=sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        with self._changed:
            self._processes.append(process)
            if self._closed:
                _kill(self._processes)
        return process

    def _feed(self, process: subprocess.Popen[bytes]) -> None:
        mine: set[str] = set()
        while (promise := self._take(mine)) is not None:
            try:
                promise.code = self._obtain(promise.job, partial(_ask, process))
            finally:
                promise.finished.set()

    def _take(self, mine: set[str]) -> Promise | None:
        """The next job, None = no more will come, it seems.

        Kernels of one module call the same functions, so they are best compiled in one process.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._jobs or self._closed, PATIENCE):
                return None
            if self._closed:
                return None
            modules = [promise.job.module for promise in self._jobs]
            known = (i for i, module in enumerate(modules) if module in mine)
            fresh = (i for i, module in enumerate(modules) if module not in self._seen)
            index = next(known, next(fresh, 0))
            mine.add(modules[index])
            self._seen.add(modules[index])
            return self._jobs.pop(index)


def _ask(process: subprocess.Popen[bytes], job: Job) -> bytes:
    """Raises OSError or EOFError if the process is gone."""
    assert process.stdin
    assert process.stdout
    pickle.dump(job, process.stdin)
    process.stdin.flush()
    size = int.from_bytes(_exactly(process.stdout, SIZE_BYTES), "little")
    return _exactly(process.stdout, size)


def _exactly(stream: Any, size: int) -> bytes:
    data: bytes = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data


def _kill(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        with suppress(OSError):
            process.kill()
        process.wait()
    processes.clear()
