"""A device owns memory and runs ops. Nothing heavy is imported until one is opened."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from turbodflash_kernels.cards import PACKAGES, check_card, interpreting, not_installed
from turbodflash_kernels.errors import NoDevice, NoKernel
from turbodflash_kernels.kv import HeadFormat, head_formats
from turbodflash_kernels.op import Array, DeltaShape, Part
from turbodflash_kernels.planar import Format

T = TypeVar("T")
Bytes = NDArray[np.uint8]

DEVICES = ("cpu", "gpu", "reference")


class Weight(Protocol):
    """A matrix [rows, cols] in the layout its device likes best."""

    @property
    def rows(self) -> int: ...
    @property
    def cols(self) -> int: ...
    @property
    def nbytes(self) -> int: ...


class KV(Protocol):
    """Keys and values of one layer, one slot per position.

    How they lie in memory is the device's affair. `rows` and `put_rows` speak the bytes of the
    types themselves, the same on every device.

    ring: 0, or how many slots there are, a multiple of RING_STEP: position p then lies in slot
    p % ring, where it takes the place of p - ring. Methods and ops are told positions, however
    large: what they call slot s is slot s % ring. Whoever asks for one that is gone gets another.
    """

    @property
    def ring(self) -> int: ...

    @property
    def format_k(self) -> HeadFormat: ...
    @property
    def format_v(self) -> HeadFormat: ...
    @property
    def nbytes(self) -> int: ...

    def read(self, start: int, stop: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """What slots start..stop-1 hold: K and V, each float [stop - start, kv_heads, head_dim].

        As the model knows them: neither padded nor rotated.
        """
        ...

    def rows(self, start: int, stop: int) -> tuple[Bytes, Bytes]:
        """K and V of slots start..stop-1 as stored: uint8 [stop - start, kv_heads, row_bytes]."""
        ...

    def put_rows(self, start: int, k: Bytes, v: Bytes) -> None:
        """Slots start, start + 1, ... become what `rows` had given, after all work before."""
        ...

    def move(self, sources: Sequence[int], to: int) -> None:
        """Slots to, to + 1, ... become what the sources held, after all work recorded before.

        sources: ascending, with sources[i] >= to + i; else ValueError.
        """
        ...


SETTLED, CARRIED, TAKEN, ROUND = range(4)
"""What the counts of recurrent states say, i32[4]; the op `delta_net` tells what they mean."""


class State(Protocol):
    """What one recurrent layer remembers: of all tokens as much as of one.

    memory: what `delta_net` has taken in. Rows of a trial wait beside it, as pending rows
    [room, shape.pending], until it is known whether they count. All of this happens after all work
    that was recorded before.
    """

    @property
    def shape(self) -> DeltaShape: ...
    @property
    def room(self) -> int: ...
    @property
    def nbytes(self) -> int: ...

    def clear(self) -> None:
        """No token was seen."""
        ...

    def read(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The memory: window [taps - 1, channels], the last rows before they were convolved, and
        S [value_heads, head_dim of keys, head_dim of values].
        """
        ...

    def put(self, window: NDArray[np.float32], s: NDArray[np.float32]) -> None:
        """The memory becomes what `read` had given."""
        ...

    def pending(self, count: int) -> NDArray[np.float32]:
        """The first pending rows [count, shape.pending]."""
        ...

    def put_pending(self, rows: NDArray[np.float32]) -> None:
        """The first pending rows become these."""
        ...

    def gather(self, rows: Sequence[int]) -> None:
        """Pending rows 0, 1, ... become what these ones held; rows: ascending."""
        ...

    @property
    def seen(self) -> int:
        """The last round whose rows were settled."""
        ...

    def save(self, rows: int) -> Any:
        """A copy of the memory and of the first pending rows on this device, for `restore`."""
        ...

    def restore(self, saved: Any) -> None:
        """Memory and pending rows become what they were when they were saved."""
        ...


RING_STEP = 128
"""Slots of a ring are a multiple of it, so that no tile of so many keys or fewer wraps around."""


def ring_of(slots: int, ring: bool) -> int:
    """`KV.ring` of a cache of so many slots; raises ValueError for those that make no ring."""
    if ring and (slots < 1 or slots % RING_STEP):
        raise ValueError(f"{slots} slots make no ring, a multiple of {RING_STEP} does")
    return slots if ring else 0


def moves(sources: Sequence[int], to: int) -> list[tuple[int, int]]:
    """For `KV.move`: what is copied to where, in an order in which nothing is lost."""
    places = range(to, to + len(sources))
    pairs = list(zip(sources, places, strict=True))
    if to < 0 or list(sources) != sorted(set(sources)) or any(s < t for s, t in pairs):
        raise ValueError(f"slots {list(sources)} cannot close up from slot {to} on")
    return [pair for pair in pairs if pair[0] != pair[1]]


class Probe(Protocol):
    """Measures what a device could do at best, right now."""

    @property
    def threads(self) -> int: ...
    @property
    def isa(self) -> str: ...

    def read_gbs(self) -> float:
        """1e9 bytes a second, reading memory."""
        ...

    def peak_gmacs(self) -> float:
        """1e9 multiply-adds a second, of the numbers that products are made of there."""
        ...


class Device(ABC):
    """Where arrays live and ops run.

    Arrays are handles: their contents are seen through `read` alone, because a device may record
    work instead of doing it at once.
    """

    name: ClassVar[str]
    implementations: ClassVar[tuple[str, ...]]
    """Files of an op's folder to try, best first."""

    apart: ClassVar[bool] = False
    """Its memory is not the host's: what is read must be copied."""

    poison: bool = False
    """Fresh memory is filled with NaN, so that a kernel that forgets a lane fails always."""

    @abstractmethod
    def describe(self) -> str:
        """For a person: the device, its instruction set, its threads."""

    @abstractmethod
    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Memory whose contents nobody may rely on."""

    @abstractmethod
    def upload(self, values: NDArray[Any]) -> Array:
        """A copy of host values."""

    @abstractmethod
    def read(self, array: Array) -> NDArray[Any]:
        """The values of an array, after all work that was recorded before."""

    def read_all(self, arrays: Sequence[Array]) -> list[NDArray[Any]]:
        """The values of several small arrays, at the price of one."""
        return [self.read(array) for array in arrays]

    def write(self, array: Array, values: NDArray[Any]) -> None:
        """Replace the contents of an input buffer, after all work that was recorded before."""
        self.read(array)[...] = values

    def copy(self, target: Array, *sources: Array) -> None:
        """Replace the contents of an input buffer, or of a slice of it, by other arrays' [n, width]
        side by side.
        """
        np.concatenate([self.read(source) for source in sources], axis=-1, out=self.read(target))

    @abstractmethod
    def pack(self, parts: Sequence[Part], cols: int, searched: bool = False) -> Weight:
        """The parts, one below the other, as one matrix.

        searched: mostly it is asked for its largest products (see `top_logits`).

        A device may still be decoding when this returns; `flush` waits for all that is under way.
        """

    @abstractmethod
    def flush(self) -> None:
        """Wait until everything that was asked for is done; errors of the parts are raised here."""

    def bytes_per_weight(self, format: Format) -> float:
        """What one weight of this format costs once packed, for planning memory."""
        return format.bytes_per_weight()

    def bytes_searched(self, format: Format) -> float:
        """What of such a weight is read to find a few largest products (see `top_logits`)."""
        return self.bytes_per_weight(format)

    def kv(
        self,
        type_k: str,
        type_v: str,
        positions: int,
        kv_heads: int,
        head_dim_k: int,
        head_dim_v: int,
        rotate: bool = False,
        ring: bool = False,
    ) -> KV:
        """Room for the keys and values of one layer, in types of the package `kv`.

        rotate: plain quantised types are stored rotated. ring: as for `new_kv`. Raises NoKernel for
        a type that there is not, or that heads of this size cannot take.
        """
        formats = head_formats(type_k, type_v, head_dim_k, head_dim_v, rotate)
        return self.new_kv(*formats, positions, kv_heads, ring)

    @abstractmethod
    def new_kv(
        self,
        format_k: HeadFormat,
        format_v: HeadFormat,
        positions: int,
        kv_heads: int,
        ring: bool = False,
    ) -> KV:
        """As `kv`, of heads stored in these formats; a slot that was not written holds anything.

        ring: so many positions are remembered of any number (see `KV`); a multiple of RING_STEP,
        else ValueError.
        """

    def new_state(self, shape: DeltaShape, counts: Array, room: int) -> State:
        """The memory of one recurrent layer, which has seen no token.

        counts: i32[4] on this device, which all layers of a model share (see `delta_net`).
        room: pending rows there is room for. Raises NoKernel.
        """
        raise NoKernel(f"the {self.name} device has no recurrent layers")

    def bind(self, op: str, /, **static: Any) -> Callable[..., Any]:
        """The op with everything that does not change from call to call settled.

        Raises NoKernel with every implementation's reason when none applies.
        """
        reasons = []
        for implementation in self.implementations:
            module = _implementation(op, implementation)
            why = module.refuse(self, **static) if module else f"there is no {implementation}.py"
            if module and why is None:
                return module.bind(self, **static)
            reasons.append(f"  {self.name}: {why}")
        described = ", ".join(f"{key}={_described(value)}" for key, value in static.items())
        raise NoKernel("\n".join([f"no kernel for {op}({described}):", *reasons]))

    def free_bytes(self) -> int | None:
        """Bytes that are free in a memory of its own; None = it lives in the host's."""
        return None

    def probe(self) -> Probe:
        """For benchmarks; raises NoDevice if this device has no ceilings worth measuring."""
        raise NoDevice(f"the {self.name} device cannot be measured", hint="use the cpu device")

    @abstractmethod
    def capture(self, step: Callable[[], T], threads: int = 0, rows: int = 1) -> Callable[[], T]:
        """Record the ops of `step`; calling the result runs them and returns what `step` returned.

        threads: how many of its threads a device may use for them; 0 means as many as it thinks
        best. The numbers are the same with any.
        rows: how many rows most of its ops are about; a device may find that recording many of
        them is not worth it.

        `step` is called, once or more often, with its input buffers in place (see `write`); between
        two runs only the contents of input buffers change. It returns arrays, or tuples, lists and
        dictionaries of them; they hold their values until it is run again, or anything that was
        captured before it. What is recorded while they are there writes elsewhere.
        """


def open_device(
    name: str,
    threads: int = 0,
    threads_batch: int = 0,
    compiling: Callable[[str], None] | None = None,
    graphs: bool = True,
    helpers: int = 0,
) -> Device:
    """The device of that name; of several cards, "gpu:1" is the second. Raises NoDevice.

    threads: for few rows; 0 means all cores this process may use.
    threads_batch: for many rows; 0 means as many as `threads`.
    compiling: called with a kernel's name before it is compiled, which takes seconds.
    graphs: a card may run captured passes as graphs.
    helpers: so many processes, at most, may compile while ops are bound, until the first is run.
    """
    if name == "reference":
        from turbodflash_kernels._reference import ReferenceDevice

        return ReferenceDevice()
    if name == "cpu":
        from turbodflash_kernels._cpu.device import CpuDevice

        return CpuDevice(threads, threads_batch, compiling, helpers)
    kind, _, index = name.partition(":")
    if kind == "gpu" and (index or "0").isdecimal():
        return _open_gpu(int(index or 0), graphs)
    raise NoDevice(f"no device named {name!r}", hint=f"there are: {', '.join(DEVICES)}")


def _open_gpu(index: int, graphs: bool) -> Device:
    if not interpreting():
        check_card(index)
    try:
        from turbodflash_kernels._gpu.device import GpuDevice
    except ModuleNotFoundError as error:
        if error.name not in PACKAGES:
            raise
        raise not_installed(error.name) from None
    return GpuDevice.open(index, graphs)


def _implementation(op: str, implementation: str) -> ModuleType | None:
    """A file of the op's folder, or None. An error inside the file is raised as it is."""
    path = f"turbodflash_kernels.{op}.{implementation}"
    try:
        return import_module(path)
    except ModuleNotFoundError as error:
        if error.name != path:
            raise
        return None


def _described(value: Any) -> str:
    """Numbers and words as they are, arrays and matrices by their shape, others by their kind."""
    if isinstance(value, (bool, int, float, str, type(None))):
        return repr(value)
    if hasattr(value, "dtype"):
        return f"{value.dtype}{list(value.shape)}"
    if hasattr(value, "cols"):
        return f"{value.rows}x{value.cols}"
    return type(value).__name__
