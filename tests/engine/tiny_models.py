"""Tiny random models of the golden data, as files, as tensors in memory, and built."""

from __future__ import annotations

import lzma
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.golden_files import GOLDEN, SHARED_GOLDEN
from turbodflash_engine import plugins
from turbodflash_engine.gguf import open_gguf
from turbodflash_engine.layers.rope import RopeOverrides
from turbodflash_engine.layers.tensors import Info, Tensors
from turbodflash_engine.metadata import Metadata
from turbodflash_engine.models._base import PASS_ROWS, CachePlan, Model
from turbodflash_engine.models._placement import Placement
from turbodflash_engine.quant import weight_type
from turbodflash_kernels.device import Device

TARGETS = (*plugins.names("models"), "gemma4moe")
"""A tiny model of each architecture, and of a form of one that computes otherwise."""

_folder = TemporaryDirectory(prefix="tiny-models-")


@dataclass
class Made:
    """A tensor that no file holds."""

    name: str
    type: str
    shape: tuple[int, ...]
    data: NDArray[np.uint8]

    @property
    def nbytes(self) -> int:
        return self.data.nbytes

    def release(self, start: int, stop: int) -> None:
        """These arrays have no file behind them."""


def made(name: str, values: NDArray[np.float32]) -> Made:
    """A tensor of float32, [rows, cols] or [n]."""
    rows = np.ascontiguousarray(np.atleast_2d(values), np.float32)
    return Made(name, "F32", values.shape[::-1], rows.view(np.uint8))


@cache
def path_of(name: str) -> Path:
    """The unpacked file of a tiny model, such as "llama" or "llama-q-q4_1"."""
    packed = Path("models") / f"tiny-{name}.gguf.xz"
    found = next(root / packed for root in (GOLDEN, SHARED_GOLDEN) if (root / packed).exists())
    target = Path(_folder.name) / found.stem
    target.write_bytes(lzma.decompress(found.read_bytes()))
    return target


@cache
def golden(name: str) -> Mapping[str, NDArray[np.float32]]:
    """The recorded numbers of a model: those kept here, and others of the larger data set.

    Taps that its recorder does not show are those of an independent forward pass in float64.
    """
    recorded: dict[str, NDArray[np.float32]] = {}
    for root in (SHARED_GOLDEN, GOLDEN):
        found = root / "logits" / f"{name}.npz"
        if found.exists():
            with np.load(found) as arrays:
                recorded |= dict(arrays)
    return recorded


def tensors_of(name: str) -> tuple[Metadata, dict[str, Info]]:
    file = open_gguf(path_of(name))
    return file.metadata, dict(file.tensors)


def config_of(name: str) -> Any:
    """What a tiny model's file says of it."""
    metadata, _ = tensors_of(name)
    return plugins.find("models", metadata.architecture).read(metadata, RopeOverrides())


def build(
    metadata: Metadata,
    infos: Mapping[str, Info],
    device: Device | Placement,
    *,
    positions: int = 256,
    kv: str = "f32",
    overrides: RopeOverrides | None = None,
    rows: int = PASS_ROWS,
    whole: bool = False,
) -> Model:
    """What loading does, without a tokenizer and a plan. rows, whole: as in CachePlan."""
    architecture = plugins.find("models", metadata.architecture)
    config = architecture.read(metadata, overrides or RopeOverrides())
    tensors = Tensors(infos, "tiny.gguf", lambda info: weight_type(info.type, info.name))
    tensors.check(architecture.layout(config, tensors))
    placement = device if isinstance(device, Placement) else Placement.on(device, config.layers)
    plan = CachePlan(positions, kv, kv, rows=rows, whole=whole)
    model: Model = architecture.build(config, tensors, placement, plan)
    return model


def tiny(name: str, device: Device | Placement, kv: str = "f32") -> Model:
    return build(*tensors_of(name), device, kv=kv)


def all_rows(
    device: Device, model: Model, tokens: Sequence[int], parents: Sequence[int] | None = None
) -> NDArray[np.float32]:
    """All that a pass says of each row, [n, numbers]: the logits and every tap."""
    layers = tuple(range(model.shared.layers))
    output = model(tokens, len(tokens), layers, parents)
    return np.concatenate([output.logits, *map(device.read, output.taps)], axis=1)
