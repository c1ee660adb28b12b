"""What stands for CUDA graphs where there is no card."""

from __future__ import annotations

from collections.abc import Callable

from turbodflash_kernels._gpu.graphs import Graph


class Again:
    """A graph that calls its work once more. recorded: how many there are."""

    def __init__(self) -> None:
        self.recorded = 0

    def __call__(self, work: Callable[[], None]) -> Graph:
        self.recorded += 1
        return _Work(work)


class _Work:
    def __init__(self, work: Callable[[], None]) -> None:
        self.replay = work
