"""Steps that come again and again, as CUDA graphs: a hundred launches at the price of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, TypeVar

import torch

T = TypeVar("T")


class Graph(Protocol):
    def replay(self) -> None:
        """Launch all that was recorded, with the same arguments."""


Record = Callable[[Callable[[], None]], Graph]
"""Calls what it is given once; what that launches is recorded, not done."""


class Replayed(Generic[T]):
    """A step whose kernels are launched one by one the first time, which also compiles them.

    The second time they are recorded, and from then on replayed: what comes once is never recorded.
    Recorded scratch memory may be that of other steps. Results may not: they are copied to where
    those of the first time lie, and hold there until the step runs again.
    """

    def __init__(self, step: Callable[[], T], record: Record) -> None:
        self._step, self._record = step, record
        self._results: list[T] = []
        self._graph: Graph | None = None

    def __call__(self) -> T:
        if not self._results:
            self._results.append(self._step())
            return self._results[0]
        if self._graph is None:
            self._graph = self._record(self._work)
        self._graph.replay()
        return self._results[0]

    def _work(self) -> None:
        made, kept = list(arrays(self._step())), list(arrays(self._results[0]))
        if made:
            torch._foreach_copy_(kept, made)


class CudaGraphs:
    """Records on one card. All graphs share the memory of what they make on the way.

    before: launches what every graph begins with.
    """

    def __init__(self, place: torch.device, before: Callable[[], None]) -> None:
        self._place, self._before = place, before
        self._pool: Any = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(place)

    def __call__(self, work: Callable[[], None]) -> Graph:
        graph: Any = torch.cuda.CUDAGraph()
        recording = torch.cuda.graph(
            graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
        )
        with torch.cuda.device(self._place), recording:
            self._before()
            work()
        return graph


def arrays(result: Any) -> Iterator[torch.Tensor]:
    """All arrays in what a step returned: tuples, lists and dictionaries of them."""
    if isinstance(result, torch.Tensor):
        yield result
    elif isinstance(result, dict):
        for value in result.values():
            yield from arrays(value)
    elif isinstance(result, (tuple, list)):
        for value in result:
            yield from arrays(value)
    elif result is not None:
        raise TypeError(f"a step returned a {type(result).__name__}, which holds no arrays")
