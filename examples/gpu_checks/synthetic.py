"""Models of real shapes and random weights, made on the card: no file is read, nothing is sent."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tests.engine.tiny_models import Made, tensors_of
from turbodflash_engine import plugins
from turbodflash_engine.drafters._base import Drafter, Setting
from turbodflash_engine.layers.rope import RopeOverrides
from turbodflash_engine.layers.tensors import Layout, Tensors
from turbodflash_engine.metadata import Metadata
from turbodflash_engine.models._base import CachePlan, Model
from turbodflash_engine.models._placement import Placement
from turbodflash_engine.options import SpecOptions
from turbodflash_engine.quant import weight_type
from turbodflash_kernels._gpu import layout
from turbodflash_kernels._gpu.device import GpuDevice
from turbodflash_kernels._gpu.weight import GpuWeight, PackedPart
from turbodflash_kernels.op import Part
from turbodflash_kernels.planar import Format

SCALE = 256.0  # of codes, in units: what is packed from a file has weights of 2^12 to 2^14 units


@dataclass(frozen=True)
class Shape:
    """The measures of a model, by the names that its file gives them. type: of its matrices."""

    name: str
    type: str
    layers: int
    width: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int

    def keys(self, architecture: str) -> dict[str, int]:
        return {
            f"{architecture}.{key}": value
            for key, value in {
                "block_count": self.layers,
                "embedding_length": self.width,
                "feed_forward_length": self.hidden,
                "attention.head_count": self.heads,
                "attention.head_count_kv": self.kv_heads,
                "attention.key_length": self.head_dim,
                "attention.value_length": self.head_dim,
                "vocab_size": self.vocabulary,
                "context_length": 1 << 17,
            }.items()
        }


QWEN3_8B = Shape("Qwen3-8B", "Q4_K", 36, 4096, 12288, 32, 8, 128, 151_936)
QWEN3_32B = Shape("Qwen3-32B", "Q5_K", 64, 5120, 25600, 64, 8, 128, 151_936)
TOY = Shape("toy", "Q4_1", 1, 32, 32, 2, 1, 32, 512)

DRAFT_LAYERS, DRAFT_TAPS, DRAFT_BLOCK, TOY_BLOCK = 5, 5, 16, 3


class SyntheticDevice(GpuDevice):
    """A card on which matrices hold random codes. packed: all that were asked for."""

    def __init__(self, *parts: Any, **more: Any) -> None:
        super().__init__(*parts, **more)
        self.packed: list[GpuWeight] = []

    def pack(self, parts: Sequence[Part], cols: int, searched: bool = False) -> GpuWeight:
        rows: dict[Format, int] = {}
        for part in parts:
            rows[part.format] = rows.get(part.format, 0) + part.rows
        made = GpuWeight(tuple(self._part(each, rows[each], cols) for each in rows), cols)
        self.packed.append(made)
        return made

    def random(self, type: str, rows: int, cols: int) -> GpuWeight:
        """A matrix of one type of weights."""
        return GpuWeight((self._part(weight_type(type, "").format, rows, cols),), cols)

    def _part(self, format: Format, rows: int, cols: int) -> PackedPart:
        arrays = {
            name: self._filled(name, shape, kind, format)
            for name, (shape, kind) in layout.shapes(format, rows, cols).items()
        }
        spread = 1.0 if format.dense else SCALE * 2**format.bits
        arrays["unit"].fill_(4 / (spread * cols**0.5))
        inputs = layout.padded_cols(format, cols)
        return PackedPart(format, rows, inputs, layout.Packed(**arrays))

    def _filled(self, name: str, shape: tuple[int, ...], kind: Any, format: Format) -> torch.Tensor:
        array = self.zeros(shape, kind)
        if name == "values":
            return array.normal_()
        if name == "scales":
            pair = torch.tensor([SCALE, SCALE], dtype=torch.float16, device=self.place)
            if format.affine:
                pair[1] = (
                    -SCALE * (2**format.bits - 1) / 2
                )  # so that weights are about as often < 0
            return array.fill_(pair.view(torch.int32).item())
        if array.dtype.is_floating_point:
            return array
        least, most = torch.iinfo(array.dtype).min, torch.iinfo(array.dtype).max
        return array.random_(least, most)


def model_of(shape: Shape, device: GpuDevice, positions: int) -> Model:
    """A Qwen3 of these measures; its cache is not empty of numbers, and all of them are 0."""
    metadata = Metadata(dict(tensors_of("qwen3")[0].items()) | shape.keys("qwen3"), shape.name)
    architecture = plugins.find("models", "qwen3")
    config = architecture.read(metadata, RopeOverrides())
    tensors = _tensors(shape, architecture.layout(config, {}), {"output.weight"})
    placement = Placement.on(device, config.layers)
    model: Model = architecture.build(config, tensors, placement, CachePlan(positions))
    return model


def draft_of(shape: Shape, device: GpuDevice, model: Model, positions: int) -> Drafter:
    """A DFlash draft of DRAFT_LAYERS layers like the model's own, with its tables."""
    last = shape.layers - 1
    taps = np.unique(np.linspace(min(1, last), last, DRAFT_TAPS, dtype=np.int32))
    layers = min(DRAFT_LAYERS, shape.layers)
    changes: Mapping[str, object] = {
        **shape.keys("dflash"),
        "dflash.block_count": layers,
        "dflash.block_size": TOY_BLOCK if shape is TOY else DRAFT_BLOCK,
        "dflash.target_layers": taps,
    }
    values = dict(tensors_of("dflash--qwen3")[0].items()) | dict(changes)
    kind = plugins.find("drafters", "dflash")
    config = kind.read(Metadata(values, f"draft of {shape.name}"))
    tensors = _tensors(shape, kind.layout(config, {}), set())
    setting = Setting(device, model.shared, CachePlan(positions), SpecOptions())
    drafter: Drafter = kind.build(config, tensors, setting)
    return drafter


def _tensors(shape: Shape, layout: Layout, also: Container[str]) -> Tensors:
    wanted = layout.required | {n: s for n, s in layout.optional.items() if n in also}
    infos = {name: _info(name, size, shape.type) for name, size in wanted.items()}
    return Tensors(infos, shape.name, lambda info: weight_type(info.type, info.name))


def _info(name: str, size: tuple[int, ...], type: str) -> Made:
    """A matrix has rows and no contents; a vector of scales is all ones."""
    if len(size) == 1:
        return Made(name, "F32", size, np.ones((1, size[0]), np.float32).view(np.uint8))
    kind = weight_type(type, name)
    row = size[0] // kind.block * kind.block_bytes
    return Made(name, type, size, np.broadcast_to(np.uint8(0), (size[1], row)))
