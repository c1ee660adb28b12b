"""The CPU device: ops record kernel calls on a tape; the team plays it when somebody reads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from turbodflash_kernels._cpu import kv, layout, streams, weight
from turbodflash_kernels._cpu.arena import Arena, is_scratch
from turbodflash_kernels._cpu.ceilings import CpuProbe
from turbodflash_kernels._cpu.library import Compiling, Library
from turbodflash_kernels._cpu.memory import Memory
from turbodflash_kernels._cpu.packing import Packing
from turbodflash_kernels._cpu.state import CpuState
from turbodflash_kernels._cpu.team import Tape, Team, address, aligned
from turbodflash_kernels._cpu.words import ARGUMENT_WORDS, RECORD_WORDS, first_task, float_word
from turbodflash_kernels.device import Device, ring_of
from turbodflash_kernels.kv import HeadFormat
from turbodflash_kernels.op import DeltaShape, Part
from turbodflash_kernels.planar import Format

T = TypeVar("T")

REACH_TASKS = 8  # of each thread
MANY_ROWS = 16  # from here on a pass counts as a prompt: other task shapes, other thread count


class Stream(NamedTuple):
    """Memory that tasks read one after the other."""

    address: int
    task_bytes: int


class CpuDevice(Device):
    """Kernels compiled by Numba, on a team of threads.

    threads: for passes of few rows; threads_batch: for prompts; 0 means all usable cores.
    helpers: processes, at most, that compile what is bound before anything is played; as many as
    there are usable cores, and none where there is one.
    """

    name: ClassVar[str] = "cpu"
    implementations: ClassVar[tuple[str, ...]] = ("launch",)

    def __init__(
        self,
        threads: int = 0,
        threads_batch: int = 0,
        compiling: Compiling | None = None,
        helpers: int = 0,
    ) -> None:
        self.threads = threads or usable_cores()
        self.threads_batch = threads_batch or self.threads
        cores = usable_cores()
        self.library = Library(compiling, min(helpers, cores) if cores > 1 else 0)
        self.isa = self.library.isa
        self._team = Team(max(self.threads, self.threads_batch), self.library)
        self._memory = Memory()
        self._arena = Arena(self._memory)
        self._records: list[int] = []
        self._kept: list[Any] = []
        self._many = False
        self._memo: dict[Any, Any] = {}
        self._announced = 0
        self._capturing = False
        self._packing = Packing(self.threads_batch, self.library)

    def describe(self) -> str:
        batch = f" ({self.threads_batch} for prompts)" * (self.threads_batch != self.threads)
        return f"cpu {self.isa}, {self.threads} threads{batch}"

    def probe(self) -> CpuProbe:
        return CpuProbe(self)

    # -- memory ----------------------------------------------------------------------------------

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        array = aligned(int(np.prod(shape)), dtype).reshape(shape)
        return self._poisoned(array)

    def scratch(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """For results of ops: the memory returns to the device with the last view of it."""
        return self._poisoned(self._arena.take(shape, dtype))

    @property
    def scratch_bytes(self) -> int:
        return self._arena.nbytes

    def _poisoned(self, array: NDArray[Any]) -> NDArray[Any]:
        if self.poison and not self._capturing and array.dtype.kind == "f":
            self.flush()  # what was recorded may still read this memory under another name
            array.fill(np.nan)
        return array

    def upload(self, values: NDArray[Any]) -> NDArray[Any]:
        array = aligned(values.size, values.dtype).reshape(values.shape)
        np.copyto(array, values)
        return array

    def read(self, array: NDArray[Any]) -> NDArray[Any]:
        self.flush()
        return array

    def copy(self, target: NDArray[Any], *sources: NDArray[Any]) -> None:
        self.flush()
        np.concatenate(sources, axis=-1, out=target)

    def pack(self, parts: Sequence[Part], cols: int, searched: bool = False) -> weight.CpuWeight:
        packed = weight.pack(parts, cols, self.library, self._memory, self._packing, searched)
        for part in packed.parts:
            if part.lower:
                self._find_reaches(part, part.lower)
        return packed

    def _find_reaches(self, part: weight.PackedPart, lower: weight.Lower) -> None:
        """Before anything else, once the part is packed."""
        kernel = self.library.address("_cpu.stream_kernels", "reaches")
        per_task = -(-part.count // (REACH_TASKS * self.threads))
        words = (address(part.tiles), address(lower.tiles), part.cols // layout.BLOCK)
        tasks = (part.count, per_task, float_word(part.factor), address(lower.reaches))
        self.record(kernel, -(-part.count // per_task), *words, *tasks, rows=1)
        self._kept += (part, lower)

    def bytes_per_weight(self, format: Format) -> float:
        cols = 256
        return layout.tile_bytes(format, cols) / (layout.TILE * cols)

    def bytes_searched(self, format: Format) -> float:
        return self.bytes_per_weight(
            streams.UPPER if streams.fits(format, layout.BLOCK) else format
        )

    def new_kv(
        self,
        format_k: HeadFormat,
        format_v: HeadFormat,
        positions: int,
        kv_heads: int,
        ring: bool = False,
    ) -> kv.CpuKV:
        slots = ring_of(positions, ring)
        return kv.make(format_k, format_v, positions, kv_heads, slots, self.library, self.flush)

    def new_state(self, shape: DeltaShape, counts: NDArray[Any], room: int) -> CpuState:
        return CpuState.empty(shape, counts, room, self.flush)

    # -- recording -------------------------------------------------------------------------------

    def kernel(self, op: str, name: str, *spec: Any) -> int:
        """The address of a kernel of an op's cpu.py."""
        return self.library.address(f"{op}.cpu", name, *spec)

    def record(
        self, kernel: int, tasks: int, *words: int, rows: int, stream: Stream | None = None
    ) -> None:
        """Call the kernel for tasks 0..tasks-1 with these words, after all that came before.

        stream: the weights that the tasks read in order, from memory.
        """
        padding = ARGUMENT_WORDS - len(words)
        if stream is not None:
            self._announce(stream, tasks)
        self._records += (kernel, tasks, *words, *(0,) * padding, 0, 0)
        self._many = self._many or rows > MANY_ROWS

    def _announce(self, stream: Stream, tasks: int) -> None:
        """Let whoever waits after a record since the stream before this ask for its beginning."""
        own = first_task(tasks, 1, self.threads)
        for at in range(self._announced, len(self._records), RECORD_WORDS):
            self._records[at + RECORD_WORDS - 2 : at + RECORD_WORDS] = (
                stream.address,
                own * stream.task_bytes,
            )
        self._announced = len(self._records)

    def keep(self, *arrays: Any) -> None:
        """Hold on to what the tape being recorded names by address.

        Not to scratch: its memory stays with the device, and the next op may have it.
        """
        self._kept += [array for array in arrays if not is_scratch(array)]

    def once(self, key: Any, make: Callable[[], T]) -> T:
        """The result of make(), shared by all ops of the tape being recorded that ask for key."""
        if key not in self._memo:
            self._memo[key] = make()
        return self._memo[key]

    def flush(self) -> None:
        """Do what was recorded."""
        if not self._packing.idle:
            self._packing.wait()
        if self._records:
            tape, many, _ = self._take()
            self._play(tape, many)

    def capture(self, step: Callable[[], T], threads: int = 0, rows: int = 1) -> Callable[[], T]:
        with self._fresh_tape():
            result = step()
            tape, many, kept = self._take()

        def run() -> T:
            assert kept is not None
            self.flush()
            self._play(tape, many, threads)
            return result

        return run

    @contextmanager
    def _fresh_tape(self) -> Iterator[None]:
        if self._records:
            self.flush()
        self._capturing = True
        try:
            yield
        finally:
            self._capturing = False
            self._take()  # an op that failed leaves nothing half recorded

    def _take(self) -> tuple[Tape, bool, list[Any]]:
        taken = Tape(self._records), self._many, self._kept
        self._records, self._many, self._kept, self._memo = [], False, [], {}
        self._announced = 0
        return taken

    def _play(self, tape: Tape, many: bool, threads: int = 0) -> None:
        self.library.settle()
        self._team.run(tape, threads or (self.threads_batch if many else self.threads))


def usable_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


__all__ = ["MANY_ROWS", "CpuDevice", "address"]
