"""A process that compiles kernels for another one: jobs come in, object code goes out.

What it reads is pickled by the process that started it, through a pipe that nobody else has.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
from collections.abc import Hashable
from importlib import import_module
from queue import SimpleQueue
from threading import Thread
from typing import NamedTuple

SIZE_BYTES = 8  # in front of object code


class Job(NamedTuple):
    """Kernel `name` of `turbodflash_kernels.<module>`, which shall be called `symbol`."""

    symbol: str
    module: str
    name: str
    spec: tuple[Hashable, ...]

    def compile(self) -> bytes:
        """Object code. module.build(name, *spec) must return the kernel's Python source."""
        from turbodflash_kernels._cpu.build import compile_object

        source = import_module(f"turbodflash_kernels.{self.module}")
        return compile_object(source.build(self.name, *self.spec), self.symbol)


def main() -> None:
    """Serve until whoever started this process wants no more, or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it at once, without a word
    gc.disable()  # hardly anything that a compiler makes is ever garbage
    jobs: SimpleQueue[Job] = SimpleQueue()
    Thread(target=_read, args=(jobs,), daemon=True).start()
    with os.fdopen(os.dup(1), "wb") as results:
        os.dup2(2, 1)  # nothing else gets in between
        import_module("turbodflash_kernels._cpu.build")  # while the first job is on its way
        while True:
            code = jobs.get().compile()
            results.write(len(code).to_bytes(SIZE_BYTES, "little") + code)
            results.flush()


def _read(jobs: SimpleQueue[Job]) -> None:
    with open(0, "rb") as stream:
        while True:
            try:
                jobs.put(pickle.load(stream))
            except EOFError:
                os._exit(0)  # whatever the other thread is at
