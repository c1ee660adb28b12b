"""The door to a file's tensors: what a model wants is checked before a byte is loaded."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from threading import Lock
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from turbodflash_engine.errors import BadModel
from turbodflash_engine.layers.contradiction import contradicted
from turbodflash_engine.metadata import Metadata
from turbodflash_kernels.blocks import Blocks, Stored
from turbodflash_kernels.op import Part
from turbodflash_kernels.planar import Format, Planar, dequantize

Shape = tuple[int, ...]

ANY = -1  # in a shape: whatever the file has
ID_TYPES = {"I32": "<i4", "I64": "<i8"}

LOOKED_AT = 16  # pieces of a tensor that threads may be busy with
MOST_NAMES = 5  # named in an error; the rest are counted
INCOMPLETE = "get the model from another source, or convert it again"
IGNORED = "to ignore them would change the answers; get another file of this model"
RESCALED = "nothing is known that such a scale could mean; get another quantization"
SCALE, INPUT_SCALE = ".scale", ".input_scale"


class Info(Protocol):
    """One tensor of a file; shape in the file's order, the row length first."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def shape(self) -> Shape: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def data(self) -> NDArray[np.uint8]: ...

    def release(self, start: int, stop: int) -> None:
        """These rows of the data will not be read again soon."""


class WeightType(Protocol):
    """How the bytes of a type become planar."""

    @property
    def format(self) -> Format: ...
    @property
    def decode(self) -> Callable[[NDArray[np.uint8]], Planar]: ...
    @property
    def blocks(self) -> Blocks | None: ...


@dataclass(slots=True)
class Layout:
    """Names and shapes of the tensors that a model needs, and of those it uses when present.

    ids: those of the latter that hold whole numbers, such as tokens. apart: those that a file may
    hold beside the model, which are not loaded with it. ANY in a shape is any size.
    """

    required: dict[str, Shape] = field(default_factory=dict)
    optional: dict[str, Shape] = field(default_factory=dict)
    ids: dict[str, Shape] = field(default_factory=dict)
    apart: dict[str, Shape] = field(default_factory=dict)

    def add(self, other: Layout) -> None:
        self.required |= other.required
        self.optional |= other.optional
        self.ids |= other.ids
        self.apart |= other.apart

    @property
    def all(self) -> dict[str, Shape]:
        """Every name that a file may hold."""
        named = self.required | self.optional | self.ids | self.apart
        matrices = [_stem(name) for name, shape in named.items() if len(shape) == 2]
        return {f"{stem}{SCALE}": (1,) for stem in matrices} | named


class Tensors:
    """The tensors of one file.

    source: names the file in errors.
    weight_type: the type of a tensor; raises BadModel for one that is not supported.
    loaded: told how many bytes of the file were decoded; called from several threads.
    metadata: what shapes are expected from; it is named where they contradict it.
    """

    def __init__(
        self,
        infos: Mapping[str, Info],
        source: str,
        weight_type: Callable[[Info], WeightType],
        loaded: Callable[[int], None] = lambda nbytes: None,
        metadata: Metadata | None = None,
    ) -> None:
        self._infos, self.source, self._metadata = infos, source, metadata
        self._weight_type, self._loaded = weight_type, loaded
        self._apart: set[str] = set()

    def __contains__(self, name: object) -> bool:
        return name in self._infos

    def check(self, layout: Layout) -> None:
        """Raises BadModel unless the file holds what the layout wants, and nothing beyond it."""
        expected = layout.all
        names = {name for name in self._infos if not _is_moot(name, expected)}
        unknown = names - expected.keys()
        scales = {name for name in unknown if name.endswith(SCALE)}
        self._none(scales, "rescales", RESCALED)
        self._none(layout.required.keys() - names, "has no tensor", INCOMPLETE)
        self._none(unknown, "has more than this architecture uses:", IGNORED)
        for name in sorted(names):
            self._check_type(self._infos[name], ids=name in layout.ids)
            self._check_shape(self._infos[name], expected[name])
        self._apart = names & layout.apart.keys()

    @property
    def nbytes(self) -> int:
        """What all of them take in the file."""
        return sum(info.nbytes for info in self._infos.values())

    @property
    def elements(self) -> int:
        return sum(prod(info.shape) for info in self._infos.values())

    @property
    def apart_bytes(self) -> int:
        """What the file holds beside the model."""
        return sum(self._infos[name].nbytes for name in self._apart)

    def packed_bytes(self, bytes_per_weight: Callable[[Format], float]) -> dict[str, int]:
        """What each matrix and vector of the model takes once packed."""
        return {
            name: round(bytes_per_weight(self._weight_type(info).format) * prod(info.shape))
            for name, info in self._infos.items()
            if info.type not in ID_TYPES and name not in self._apart
        }

    def weight_bytes(self, bytes_per_weight: Callable[[Format], float]) -> int:
        """What they take together."""
        return sum(self.packed_bytes(bytes_per_weight).values())

    def part(self, name: str, rows: NDArray[np.intp] | None = None) -> Part:
        """A matrix; shape [in, out] in the file's order gives `out` rows, or these of them.

        The pages of a tensor that is taken apart stay until the file is closed.
        """
        info = self._infos[name]
        weight_type, data = self._weight_type(info), info.data
        done = _Decoded(info, len(data))

        def decode(start: int, stop: int) -> Planar:
            taken = data[start:stop] if rows is None else data[rows[start:stop]]
            planar = weight_type.decode(taken)
            self._loaded(taken.nbytes)
            if rows is None:
                done.add(start, stop)
            return planar

        def taken(start: int, stop: int) -> None:
            self._loaded(data[start:stop].nbytes)
            done.add(start, stop)

        count = len(data) if rows is None else len(rows)
        whole = rows is None and (weight_type.format.dense or weight_type.blocks)
        stored = Stored(weight_type.blocks, data, taken) if whole else None
        return Part(weight_type.format, count, decode, self._factor(name), stored)

    def shape(self, name: str) -> Shape:
        """In the file's order, the row length first."""
        return self._infos[name].shape

    def vector(self, name: str) -> NDArray[np.float32]:
        """A tensor of one dimension, f32[n]."""
        part = self.part(name)
        return dequantize(part.decode(0, part.rows)).reshape(-1) * np.float32(part.factor)

    def ids(self, name: str) -> NDArray[np.int64]:
        """A tensor of whole numbers, i64[n]."""
        info = self._infos[name]
        return info.data.view(ID_TYPES[info.type]).reshape(-1).astype(np.int64)

    def vectors(self, names: Iterable[str], sizes: Iterable[int]) -> NDArray[np.float32] | None:
        """Those vectors in a row, with zeros for absent ones; None when all are absent."""
        pairs = list(zip(names, sizes, strict=True))
        if not any(name in self for name, _ in pairs):
            return None
        return np.concatenate(
            [self.vector(name) if name in self else np.zeros(size, "f4") for name, size in pairs]
        )

    def _factor(self, name: str) -> float:
        """The scale that stands beside a matrix as one number."""
        beside = f"{_stem(name)}{SCALE}"
        if len(self.shape(name)) != 2 or beside not in self or self.shape(beside) != (1,):
            return 1.0  # experts have one each, even if there is one expert
        return float(self.vector(beside)[0])

    def _check_type(self, info: Info, ids: bool) -> None:
        if not ids:
            self._weight_type(info)
        elif info.type not in ID_TYPES:
            raise BadModel(
                f"'{self.source}': tensor {info.name!r} is of type {info.type}, "
                f"expected whole numbers, {' or '.join(ID_TYPES)}",
                hint=INCOMPLETE,
            )

    def _check_shape(self, info: Info, expected: Shape) -> None:
        pairs = zip(info.shape, expected, strict=False)
        fits = all(wanted in (size, ANY) for size, wanted in pairs)
        if len(info.shape) != len(expected) or not fits:
            wanted = ", ".join("any" if size == ANY else str(size) for size in expected)
            keys = self._metadata and contradicted(self._metadata, info.shape, expected)
            raise BadModel(
                f"'{self.source}': tensor {info.name!r} has the shape {list(info.shape)}, "
                f"expected [{wanted}]" + (f": metadata key {keys}" if keys else ""),
                hint=INCOMPLETE,
            )

    def _none(self, names: Iterable[str], what: str, hint: str) -> None:
        found = sorted(names)
        if found:
            more = f" and {len(found) - MOST_NAMES} more" if len(found) > MOST_NAMES else ""
            listed = ", ".join(map(repr, found[:MOST_NAMES]))
            raise BadModel(f"'{self.source}' {what} {listed}{more}", hint)


def _stem(name: str) -> str:
    return name.removesuffix(".weight")


def _is_moot(name: str, expected: Container[str]) -> bool:
    """A scale for activations, which only those need who quantise them to floats of four bits."""
    stem = name.removesuffix(INPUT_SCALE)
    return stem != name and f"{stem}.weight" in expected


class _Decoded:
    """Rows that were decoded; those of some while ago are released, at the end all of them.

    What was just decoded may be looked at a moment longer: a dense type is not copied. A matrix of
    experts can be a tenth of a file, so it is not kept until its end.
    """

    def __init__(self, info: Info, rows: int) -> None:
        self._info, self._left = info, rows
        self._ranges: deque[tuple[int, int]] = deque()
        self._lock = Lock()

    def add(self, start: int, stop: int) -> None:
        with self._lock:
            self._ranges.append((start, stop))
            self._left -= stop - start
            while len(self._ranges) > (LOOKED_AT if self._left else 0):
                self._info.release(*self._ranges.popleft())
