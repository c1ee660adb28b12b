"""The GPU device: ops launch Triton kernels on a stream; reading waits for them.

Where TRITON_INTERPRET=1 is set before this module is imported, the same kernels run interpreted, on
tensors in the host's memory: slow, for tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import torch
import triton
from numpy.typing import DTypeLike, NDArray

from turbodflash_kernels._gpu import kv, state, weight
from turbodflash_kernels._gpu.ceilings import GpuProbe
from turbodflash_kernels._gpu.counters import Counters
from turbodflash_kernels._gpu.graphs import CudaGraphs, Record, Replayed
from turbodflash_kernels._gpu.launching import Launch, Recorder, launch_now, launching_on
from turbodflash_kernels.device import Device, ring_of
from turbodflash_kernels.errors import NoDevice, NoRoom
from turbodflash_kernels.kv import HeadFormat
from turbodflash_kernels.op import DeltaShape, Part
from turbodflash_kernels.planar import Format

T = TypeVar("T")

RESERVE = 512 << 20  # bytes of a card for loaded kernels, graphs and torn blocks: a prediction
FEW_ROWS = 32  # up to here a pass decodes or verifies; beyond, it reads a prompt


class Card(NamedTuple):
    """What kernels are shaped by.

    capability: 90 for compute capability 9.0. sms: multiprocessors. shared: bytes a block may use.
    """

    name: str
    capability: int
    sms: int
    shared: int


KNOWN_CARDS = {
    80: Card("A100", 80, 108, 166_912),
    86: Card("RTX 3090", 86, 82, 101_376),
    89: Card("RTX 4090", 89, 128, 101_376),
    90: Card("H200", 90, 132, 232_448),
    100: Card("B200", 100, 148, 232_448),
    120: Card("RTX 5090", 120, 170, 101_376),
}
"""A card of each capability that kernels are compiled for ahead of time."""

INTERPRETED = KNOWN_CARDS[89]._replace(name="interpreted")


class GpuDevice(Device):
    """Kernels of each op's gpu.py.

    Arrays are torch tensors. Use `GpuDevice.open` for the card of this machine, and
    `GpuDevice.compiling` to learn what would be launched on another.
    """

    name: ClassVar[str] = "gpu"
    implementations: ClassVar[tuple[str, ...]] = ("gpu",)
    apart: ClassVar[bool] = True

    def __init__(
        self, card: Card, place: torch.device, launch: Launch, graphs: bool = True
    ) -> None:
        """graphs: captured passes may run as CUDA graphs."""
        self.card, self.place, self.launch = card, place, launch
        self.counters = Counters(place)
        self.record: Record | None = None
        if graphs and place.type == "cuda":
            self.record = CudaGraphs(place, self.counters.clear)

    @classmethod
    def open(cls, index: int = 0, graphs: bool = True) -> GpuDevice:
        """The card of that number, of those that torch can use. Raises NoDevice if it cannot."""
        if interpreting():
            return cls(INTERPRETED, torch.device("cpu"), launch_now, graphs)
        if not torch.cuda.is_available() or index >= torch.cuda.device_count():
            raise NoDevice(
                f"torch {torch.__version__} cannot use card {index} of this machine",
                hint='install a torch with CUDA: pip install --upgrade "turbodflash[gpu]"',
            )
        found: Any = torch.cuda.get_device_properties(index)
        card = Card(
            found.name,
            10 * found.major + found.minor,
            found.multi_processor_count,
            found.shared_memory_per_block_optin,
        )
        return cls(card, torch.device("cuda", index), launching_on(index), graphs)

    @classmethod
    def compiling(cls, capability: int) -> tuple[GpuDevice, Recorder]:
        """A device that computes nothing: the recorder learns what would be launched."""
        recorder = Recorder()
        return cls(KNOWN_CARDS[capability], torch.device("meta"), recorder), recorder

    @property
    def computes(self) -> bool:
        """False of a device that only records: its arrays have shapes and no contents."""
        return self.place.type != "meta"

    @property
    def interprets(self) -> bool:
        """True where kernels run in Triton's interpreter, one number after the other."""
        return self.place.type == "cpu"

    def describe(self) -> str:
        major, minor = divmod(self.card.capability, 10)
        return f"gpu {self.card.name}, compute capability {major}.{minor}"

    def probe(self) -> GpuProbe:
        return GpuProbe(self)

    # -- memory ----------------------------------------------------------------------------------

    def free_bytes(self) -> int | None:
        if self.place.type != "cuda":
            return None
        free, _ = torch.cuda.mem_get_info(self.place)
        return max(int(free) - RESERVE, 0)

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> torch.Tensor:
        with self._finding_room():
            array = torch.empty(shape, dtype=torch_type(dtype), device=self.place)
        if self.poison and array.dtype.is_floating_point:
            array.fill_(torch.nan)
        return array

    scratch = empty

    def zeros(self, shape: tuple[int, ...], dtype: DTypeLike) -> torch.Tensor:
        with self._finding_room():
            return torch.zeros(shape, dtype=torch_type(dtype), device=self.place)

    def upload(self, values: NDArray[Any]) -> torch.Tensor:
        host = torch.from_numpy(np.array(values, order="C"))
        with self._finding_room():
            return host if self.place.type == "cpu" else host.to(self.place)

    def read(self, array: torch.Tensor) -> NDArray[Any]:
        return self.read_all([array])[0]

    def read_all(self, arrays: Sequence[torch.Tensor]) -> list[NDArray[Any]]:
        if not self.computes:
            return [torch.zeros(array.shape, dtype=array.dtype).numpy() for array in arrays]
        if self.interprets:
            return [array.numpy() for array in arrays]
        copies = [torch.empty(a.shape, dtype=a.dtype, pin_memory=True) for a in arrays]
        for copy, array in zip(copies, arrays, strict=True):
            copy.copy_(array, non_blocking=True)
        torch.cuda.current_stream(self.place).synchronize()
        return [copy.numpy() for copy in copies]

    def write(self, array: torch.Tensor, values: NDArray[Any]) -> None:
        host = torch.from_numpy(np.ascontiguousarray(values))
        if self.place.type == "cuda":
            host = host.pin_memory()  # held by torch until it has been copied
        array.copy_(host, non_blocking=True)

    def copy(self, target: torch.Tensor, *sources: torch.Tensor) -> None:
        torch.cat(sources, dim=-1, out=target)

    def flush(self) -> None:
        if self.place.type == "cuda":
            torch.cuda.synchronize(self.place)

    def pack(self, parts: Sequence[Part], cols: int, searched: bool = False) -> weight.GpuWeight:
        with self._finding_room():
            return weight.pack(parts, cols, self)

    def bytes_per_weight(self, format: Format) -> float:
        return weight.bytes_per_weight(format)

    def new_kv(
        self,
        format_k: HeadFormat,
        format_v: HeadFormat,
        positions: int,
        kv_heads: int,
        ring: bool = False,
    ) -> kv.GpuKV:
        return kv.make(format_k, format_v, positions, kv_heads, self, ring_of(positions, ring))

    def new_state(self, shape: DeltaShape, counts: torch.Tensor, room: int) -> state.GpuState:
        return state.make(self, shape, counts, room)

    @contextmanager
    def _finding_room(self) -> Iterator[None]:
        """Others use a card as well: what fitted when it was planned may not fit any more."""
        try:
            yield
        except torch.OutOfMemoryError as error:
            raise NoRoom(
                f"the memory of the {self.card.name} is full",
                hint="use a smaller -ngl or -c, or close other programs that use the card",
            ) from error

    # -- recording -------------------------------------------------------------------------------

    def capture(self, step: Callable[[], T], threads: int = 0, rows: int = 1) -> Callable[[], T]:
        """A graph, for few rows: where there are many, the card is slower than whoever launches."""
        if self.record is None or rows > FEW_ROWS:
            return step
        return Replayed(step, self.record)


def interpreting() -> bool:
    """Whether kernels run in Triton's interpreter."""
    return bool(triton.knobs.runtime.interpret)


def torch_type(dtype: DTypeLike) -> torch.dtype:
    return torch.from_numpy(np.empty(0, dtype)).dtype
