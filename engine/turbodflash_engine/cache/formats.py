"""How each layer of a cache is stored: from the types a person asked for to bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from turbodflash_engine.cache.protection import Protection, protect
from turbodflash_engine.errors import BadUsage
from turbodflash_engine.options import LoadOptions, SpecOptions
from turbodflash_kernels.device import KV, RING_STEP, Device
from turbodflash_kernels.errors import NoKernel
from turbodflash_kernels.kv import HeadFormat, head_formats, kv_type

ROTATED = 64
"""Heads whose size is a whole multiple of it can be rotated."""


class KVShape(NamedTuple):
    """What a layer remembers of a position; window: of so many positions alone, 0 = of all.

    group: query heads that share a key head.
    """

    kv_heads: int
    key_dim: int
    value_dim: int
    window: int = 0
    group: int = 1

    def ring(self, rows: int) -> int:
        """Slots that do for a window and passes of so many rows; 0 = all positions are seen."""
        return -(-(self.window + rows - 1) // RING_STEP) * RING_STEP if self.window else 0


class LayerFormat(NamedTuple):
    """How one layer stores the heads of a position."""

    kv_heads: int
    k: HeadFormat
    v: HeadFormat

    @property
    def nbytes(self) -> int:
        """Of one position."""
        return self.kv_heads * (self.k.row_bytes + self.v.row_bytes)

    @property
    def rotated(self) -> bool:
        """Whether a plain quantised type is."""
        return "hadamard" in (self.k.rotation.kind, self.v.rotation.kind)

    def room(self, device: Device, positions: int, ring: bool = False) -> KV:
        """ring: so many are remembered of any number."""
        return device.new_kv(self.k, self.v, positions, self.kv_heads, ring)


class CacheTypes(NamedTuple):
    """What a person asked for, as the fields of LoadOptions say it."""

    k: str = "f16"
    v: str = "f16"
    rotate: str = "auto"
    protect: str = "none"

    @classmethod
    def of_model(cls, options: LoadOptions) -> CacheTypes:
        types = (options.cache_type_k, options.cache_type_v)
        return cls(*types, options.kv_rotate, options.kv_protect)

    @classmethod
    def of_draft(cls, options: LoadOptions) -> CacheTypes:
        """Of types of its own, rotated and protected as the model's."""
        spec = options.spec or SpecOptions()
        return cls(spec.cache_type_k, spec.cache_type_v, options.kv_rotate, options.kv_protect)

    def of_layers(self, shapes: Sequence[KVShape]) -> tuple[LayerFormat, ...]:
        """One a layer. Raises BadUsage for a layer whose heads cannot be stored so."""
        rotate = self.rotates(shapes)
        types = self._protected(shapes).layers
        return tuple(
            LayerFormat(shape.kv_heads, *_head_formats(layer, k, v, shape, rotate))
            for layer, (shape, (k, v)) in enumerate(zip(shapes, types, strict=True))
        )

    def rotates(self, shapes: Sequence[KVShape]) -> bool:
        """Whether plain quantised types are stored rotated.

        By itself only in models whose heads all have one size that can be.
        """
        if self.rotate != "auto":
            return self.rotate == "on"
        sizes = {(shape.key_dim, shape.value_dim) for shape in shapes}
        return len(sizes) == 1 and not any(size % ROTATED for size in next(iter(sizes)))

    def notes(self, shapes: Sequence[KVShape]) -> tuple[str, ...]:
        """Sentences that a person should read: what was protected, what costs more than it says."""
        padded = {
            note
            for format in self.of_layers(shapes)
            for note in (_padding(format.k), _padding(format.v))
            if note
        }
        return (*self._protected(shapes).notes, *sorted(padded))

    def _protected(self, shapes: Sequence[KVShape]) -> Protection:
        return protect(self.k, self.v, self.protect, [shape.group for shape in shapes])


def type_names(formats: Sequence[LayerFormat]) -> tuple[str, str]:
    """Types of keys, and of values; those of several layers joined, the most frequent first."""
    keys = Counter(format.k.type.name for format in formats)
    values = Counter(format.v.type.name for format in formats)
    return _joined(keys), _joined(values)


def _joined(names: Counter[str]) -> str:
    return "+".join(name for name, _ in names.most_common())


def _head_formats(
    layer: int, k: str, v: str, shape: KVShape, rotate: bool
) -> tuple[HeadFormat, HeadFormat]:
    try:
        return head_formats(k, v, shape.key_dim, shape.value_dim, rotate)
    except NoKernel as error:
        raise BadUsage(
            f"layer {layer} cannot be stored as asked: {error}",
            hint="use --kv-rotate auto, or another cache type",
        ) from error


def _padding(format: HeadFormat) -> str:
    """What a type that fills heads up costs, beside the next larger type that does not."""
    if format.padded == format.head_dim:
        return ""
    beside = kv_type("f16" if format.type.rotation == "none" else "q8_0")
    return (
        f"{format.type.name} fills heads of {format.head_dim} numbers up to {format.padded} and "
        f"takes {format.row_bytes} bytes for each; {beside.name} takes "
        f"{beside.row_bytes(format.head_dim)}"
    )
