"""Passes that are captured once and played again with new inputs."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from numpy.typing import NDArray

from turbodflash_kernels.device import Device
from turbodflash_kernels.op import Array

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")

FEW_ROWS = 16  # passes of so few rows come again and again: all of them are kept
WIDE_STEPS = 2  # of the others, those used last


class Threads(NamedTuple):
    """For passes of few rows, and for wider ones; 0 = as many as the device thinks best."""

    few: int = 0
    wide: int = 0

    def of(self, rows: int) -> int:
        """For a pass of so many rows."""
        return self.few if rows <= FEW_ROWS else self.wide


AS_THE_DEVICE = Threads()


@dataclass(frozen=True, slots=True)
class _Captured(Generic[Result]):
    inputs: tuple[Array, ...]
    run: Callable[[], Result]


class Steps(Generic[Key, Result]):
    """One step in the variants it was asked for, each captured when it is first needed.

    step: (key, *input buffers) -> arrays. The key says all that its ops depend on beside the
    contents of the inputs: shapes included, lengths and positions not.
    """

    def __init__(
        self, device: Device, step: Callable[..., Result], threads: Threads = AS_THE_DEVICE
    ) -> None:
        self._device, self._step, self._threads = device, step, threads
        self._few: dict[Key, _Captured[Result]] = {}
        self._wide: dict[Key, _Captured[Result]] = {}

    def __call__(self, key: Key, *inputs: NDArray[Any]) -> Result:
        """Run the variant with these inputs, the first of which has one element per row.

        The arrays it returns hold until anything captured is run again, save what was captured
        while they were there.
        """
        captured = self._few.get(key) or self._wide_or_new(key, inputs)
        for buffer, values in zip(captured.inputs, inputs, strict=True):
            self._device.write(buffer, values)
        return captured.run()

    def _wide_or_new(self, key: Key, inputs: tuple[NDArray[Any], ...]) -> _Captured[Result]:
        captured = self._wide.pop(key, None) or self._captured(key, inputs)
        if len(inputs[0]) <= FEW_ROWS:
            self._few[key] = captured
            return captured
        self._wide[key] = captured
        if len(self._wide) > WIDE_STEPS:
            del self._wide[next(iter(self._wide))]
        return captured

    def _captured(self, key: Key, inputs: tuple[NDArray[Any], ...]) -> _Captured[Result]:
        buffers = tuple(self._device.upload(values) for values in inputs)
        rows = len(inputs[0])
        threads = self._threads.of(rows)
        run = self._device.capture(lambda: self._step(key, *buffers), threads, rows)
        return _Captured(buffers, run)
