"""What an architecture offers, and what a model is to those who drive it."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from turbodflash_engine.cache import Cache, CacheTypes, KVShape
from turbodflash_engine.layers.rope import RopeOverrides
from turbodflash_engine.layers.scores import Scores
from turbodflash_engine.layers.steps import AS_THE_DEVICE, Threads
from turbodflash_engine.layers.tables import Table
from turbodflash_engine.layers.tensors import Layout, Tensors
from turbodflash_engine.metadata import Metadata
from turbodflash_engine.models._placement import Placement
from turbodflash_engine.sampling.candidates import Largest
from turbodflash_kernels.device import Device
from turbodflash_kernels.op import Array

LASTING = 512
"""Positions after which the taps of a row alone are overwritten."""


class Lasting(Sequence[Array]):
    """Taps of a pass of one row. They hold until the row LASTING positions on is tapped alone.

    Most are never looked at, so they are cut out of their rings f32[LASTING, width] by who does.
    """

    __slots__ = ("_rings", "_slot")

    def __init__(self, rings: Sequence[Array], position: int) -> None:
        self._rings, self._slot = rings, position % LASTING

    def __len__(self) -> int:
        return len(self._rings)

    def __getitem__(self, tap: Any) -> Any:
        return self._rings[tap][self._slot : self._slot + 1]


class Output(NamedTuple):
    """What a pass gives; it holds until anything else is run than its own logits.

    scores: the logits of the last rows, made when they are asked for.
    taps: for each layer asked for, f32[n, width]: the residual stream entering it, or leaving the
    last one where the number of layers was asked for, on the device
    of that layer. Those of one row that belongs to no tree are `Lasting`.
    """

    scores: Scores
    taps: Sequence[Array]

    @property
    def logits(self) -> NDArray[np.float32]:
        """f32[rows, vocabulary] on the host, of the last rows."""
        return self.scores.all()

    def largest(self, count: int, width: int) -> Largest:
        """Of the first `width` logits of these rows, on the host."""
        return self.scores.largest(count, width)


class Shared(NamedTuple):
    """Parts of a model that a drafter may use as its own.

    embedding: [vocabulary, width], not scaled; the model multiplies its rows by embedding_scale.
    head: [vocabulary, width], applied to normed rows; a cap on logits comes after it.
    layers: taps are 0 to `layers`, the last of which is what leaves the last layer. devices: where
    each of these taps lies. norm: f32[width] and eps, of the norm before the head.
    """

    embedding: Table
    head: Table
    embedding_scale: float
    width: int
    layers: int
    vocabulary: int
    devices: tuple[Device, ...] = ()
    norm: tuple[NDArray[np.float32], float] | None = None


class Model(Protocol):
    """Tokens in, logits out; what it has seen is in its cache."""

    @property
    def cache(self) -> Cache: ...
    @property
    def shared(self) -> Shared: ...
    @property
    def vocabulary(self) -> int: ...

    def __call__(
        self,
        tokens: Sequence[int],
        logits: int = 1,
        taps: tuple[int, ...] = (),
        parents: Sequence[int] | None = None,
    ) -> Output:
        """Read the tokens after those in the cache. logits: of how many of the last rows.

        parents: the tokens are a tree, and this is the row of each one's parent: -1 for row 0, the
        root, and an earlier row for the others. A row then sees its ancestors alone, and has the
        bits that it has in a chain of them. Only within a trial, which keeps one path.
        """
        ...


class Form(Protocol):
    """What a draft has to fit: a model, or a configuration of one, that has these measures."""

    @property
    def width(self) -> int: ...
    @property
    def layers(self) -> int: ...
    @property
    def vocabulary(self) -> int: ...


class Config(Form, Protocol):
    """What planning needs to know of an architecture's configuration.

    context: positions the model was trained on.
    kv_shapes: what each layer with keys and values of its own remembers; kv_layers: its number.
    state_bytes: of each recurrent layer, what it remembers.
    scratch_values: numbers alive at once per row of a pass, without the logits.
    partial_values: numbers per row that attention keeps for each group of keys, until it adds up.
    """

    @property
    def context(self) -> int: ...
    @property
    def kv_shapes(self) -> tuple[KVShape, ...]: ...
    @property
    def kv_layers(self) -> Sequence[int]: ...
    @property
    def state_bytes(self) -> Mapping[int, int]: ...
    @property
    def scratch_values(self) -> int: ...
    @property
    def partial_values(self) -> int: ...


PASS_ROWS = 512
"""Tokens of a pass, unless wider ones were asked for."""


class CachePlan(NamedTuple):
    """positions: how many tokens it holds. k to protect: how they are stored, as in CacheTypes.

    rows: tokens of the widest pass. whole: layers that look through a window remember all
    positions, as others do, so that the context can shift.
    """

    positions: int
    k: str = "f16"
    v: str = "f16"
    rotate: str = "auto"
    protect: str = "none"
    rows: int = PASS_ROWS
    whole: bool = False

    @property
    def types(self) -> CacheTypes:
        return CacheTypes(self.k, self.v, self.rotate, self.protect)


class Build(Protocol):
    """Makes a model, its weights loaded; `layout` was checked before."""

    def __call__(
        self,
        config: Any,
        tensors: Tensors,
        placement: Placement,
        plan: CachePlan,
        threads: Threads = AS_THE_DEVICE,
        /,
    ) -> Model: ...


class Architecture(NamedTuple):
    """The `PLUGIN` of a file.

    read: the configuration, from all metadata and what a person overrides.
    layout: the tensors it wants, given the names that are present.
    """

    read: Callable[[Metadata, RopeOverrides], Any]
    layout: Callable[[Any, Container[str]], Layout]
    build: Build
