"""What ops are bound with: small frozen descriptions, the same for every device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any, Literal, TypeAlias

from turbodflash_kernels.blocks import Stored
from turbodflash_kernels.planar import Format, Planar

Array: TypeAlias = Any  # a handle that a device made: it has .shape and rows can be sliced

Activation: TypeAlias = Literal["sigmoid", "silu", "gelu"]  # gelu is the tanh form


@dataclass(frozen=True, slots=True)
class Part:
    """Some rows of a matrix that lie in one tensor of a file.

    decode(start, stop): rows start..stop-1 of that tensor; may be called from several threads.
    factor: what products with these rows are multiplied by.
    stored: the same rows, for a device that needs no decoding; it then reports what it took.
    """

    format: Format
    rows: int
    decode: Callable[[int, int], Planar]
    factor: float = 1.0
    stored: Stored | None = None


@dataclass(frozen=True, slots=True, eq=False)
class RmsNorm:
    """x / sqrt(mean(x^2) + eps) * weight, over the last axis.

    weight: f32[k], a device's array.
    """

    weight: Array
    eps: float


@dataclass(frozen=True, slots=True)
class Gated:
    """act(gate) * up, where x = [gate | up] is twice as wide as the result.

    silu(x) = x * sigmoid(x); gelu is the tanh form.
    """

    activation: Literal["silu", "gelu"]


@dataclass(frozen=True, slots=True, eq=False)
class Experts:
    """A matrix of each expert, one below the other.

    weight: a device's packed matrix [experts * rows, cols].
    scale: f32[experts], a device's array: the results of an expert are multiplied by it.
    """

    weight: Any
    scale: Array | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Rope:
    """Rotation of pairs of elements by angle = position * inv_freq.

    kind: "norm" rotates elements (2i, 2i + 1), "neox" (i, i + n_rot / 2); the elements from n_rot
    on pass unchanged.
    inv_freq: f32[n_rot / 2] on the host, with scaling, divisors and YaRN folded in.
    magnitude: multiplies cosine and sine.
    """

    kind: Literal["norm", "neox"]
    n_rot: int
    inv_freq: Array
    magnitude: float = 1.0


@dataclass(frozen=True, slots=True)
class DeltaShape:
    """Sizes of a gated delta net.

    Value head j works with key head j % key_heads. head_dim: of keys and of values. taps: of the
    convolution.
    """

    key_heads: int
    value_heads: int
    head_dim: int
    taps: int

    @property
    def channels(self) -> int:
        """What is convolved: queries, keys, values."""
        return (2 * self.key_heads + self.value_heads) * self.head_dim

    @property
    def inner(self) -> int:
        """Width of the result."""
        return self.value_heads * self.head_dim

    @property
    def pending(self) -> int:
        """Numbers of a row that memory depends on."""
        return self.channels + 2 * self.value_heads

    @property
    def width(self) -> int:
        """Numbers of a row that the op is given."""
        return self.pending + self.inner

    @property
    def window(self) -> tuple[int, int]:
        """Shape of the rows that the convolution looks back on."""
        return self.taps - 1, self.channels

    @property
    def s(self) -> tuple[int, int, int]:
        """Shape of S: heads, keys, values."""
        return self.value_heads, self.head_dim, self.head_dim

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """What tells one shape from another."""
        return self.key_heads, self.value_heads, self.head_dim, self.taps

    @property
    def nbytes(self) -> int:
        """Of the memory, float32."""
        return 4 * (prod(self.window) + prod(self.s))


Prologue: TypeAlias = "RmsNorm | Gated | None"
