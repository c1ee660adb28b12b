"""The reference device: plain numpy, at once, obviously right and slow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from turbodflash_kernels._reference_kv import Coded, ReferenceKV, Unrounded
from turbodflash_kernels._reference_state import ReferenceState
from turbodflash_kernels.device import Device, ring_of
from turbodflash_kernels.kv import HeadFormat
from turbodflash_kernels.op import DeltaShape, Part
from turbodflash_kernels.planar import Format, dequantize

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ReferenceWeight:
    """The matrix as float32 [rows, cols]."""

    values: NDArray[np.float32]

    @property
    def rows(self) -> int:
        return self.values.shape[0]

    @property
    def cols(self) -> int:
        return self.values.shape[1]

    @property
    def nbytes(self) -> int:
        return self.values.nbytes


class ReferenceDevice(Device):
    """Ops in numpy, in one precision throughout.

    precision: float32, or float64 for the truth that kernels are measured against. In float64
    nothing is rounded on the way: keys and values are stored unrounded, whatever their format.
    Rows that were put there as bytes are what these bytes say, in both.
    """

    name: ClassVar[str] = "reference"
    implementations: ClassVar[tuple[str, ...]] = ("ref",)

    def __init__(self, precision: type[np.floating[Any]] = np.float32) -> None:
        self.precision = precision

    def describe(self) -> str:
        return f"reference {np.dtype(self.precision).name}"

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        array = np.zeros(shape, self._precise(dtype))
        if self.poison and array.dtype.kind == "f":
            array.fill(np.nan)
        return array

    def upload(self, values: NDArray[Any]) -> NDArray[Any]:
        return np.array(values, self._precise(values.dtype), order="C")

    def read(self, array: NDArray[Any]) -> NDArray[Any]:
        return array

    def flush(self) -> None:
        """Nothing is ever put off here."""

    def pack(self, parts: Sequence[Part], cols: int, searched: bool = False) -> ReferenceWeight:
        values = np.empty((sum(part.rows for part in parts), cols), np.float32)
        row = 0
        for part in parts:
            rows = values[row : row + part.rows]
            np.multiply(dequantize(part.decode(0, part.rows)), np.float32(part.factor), out=rows)
            row += part.rows
        return ReferenceWeight(values)

    def bytes_per_weight(self, format: Format) -> float:
        return 4.0

    def new_kv(
        self,
        format_k: HeadFormat,
        format_v: HeadFormat,
        positions: int,
        kv_heads: int,
        ring: bool = False,
    ) -> ReferenceKV:
        kind = Unrounded if self.precision is np.float64 else Coded
        rest = (positions, kv_heads, self.poison)
        sides = kind.empty(format_k, *rest), kind.empty(format_v, *rest)
        return ReferenceKV(*sides, ring_of(positions, ring))

    def new_state(self, shape: DeltaShape, counts: NDArray[Any], room: int) -> ReferenceState:
        return ReferenceState.empty(self, shape, counts, room)

    def capture(self, step: Callable[[], T], threads: int = 0, rows: int = 1) -> Callable[[], T]:
        return step

    def _precise(self, dtype: DTypeLike) -> np.dtype[Any]:
        """Floats take this device's precision unless that would widen a storage type."""
        dtype = np.dtype(dtype)
        exact = self.precision is np.float64
        return (
            np.dtype(self.precision)
            if dtype.kind == "f" and (exact or dtype.itemsize > 4)
            else dtype
        )
