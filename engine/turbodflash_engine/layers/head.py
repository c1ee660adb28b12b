"""What makes logits of the rows that leave the last block, and finds the largest of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

from turbodflash_engine.layers.steps import AS_THE_DEVICE, Threads
from turbodflash_kernels.device import Device, Weight
from turbodflash_kernels.op import Array, RmsNorm

Result = TypeVar("Result")

Best: TypeAlias = tuple[Array, Array]
"""The largest of each row, descending f32[n, count], and where they stand i32[n, count]."""


class Head:
    """The last norm and the last matrix [vocabulary, width], on a device.

    norm: None = rows are normed already. softcap: logits stay below it; 0 = they are as they come.
    threads: for few rows, and for many.
    """

    def __init__(
        self,
        device: Device,
        weight: Weight,
        norm: RmsNorm | None,
        softcap: float = 0.0,
        threads: Threads = AS_THE_DEVICE,
    ) -> None:
        self.device, self.vocabulary = device, weight.rows
        self._weight, self._norm, self._softcap, self._threads = weight, norm, softcap, threads
        self._linear = device.bind("linear", weight=weight, prologue=norm, bias=None)
        self._cap = device.bind("softcap", cap=softcap) if softcap else None
        self._best: dict[tuple[int, int], Callable[[Array], Best]] = {}

    def logits(self, x: Array) -> Array:
        """Rows f32[n, width] -> f32[n, vocabulary]."""
        logits: Array = self._linear(x)
        return self._cap(logits) if self._cap else logits

    def best(self, count: int, width: int) -> Callable[[Array], Best]:
        """The op that finds the largest of the first `width` logits of rows f32[n, width]."""
        if (count, width) not in self._best:
            self._best[count, width] = self.device.bind(
                "top_logits",
                weight=self._weight,
                prologue=self._norm,
                softcap=self._softcap,
                count=count,
                width=width,
            )
        return self._best[count, width]

    def capture(self, step: Callable[[], Result], rows: int) -> Callable[[], Result]:
        """As a device does, a step about so many rows."""
        return self.device.capture(step, self._threads.of(rows), rows)
