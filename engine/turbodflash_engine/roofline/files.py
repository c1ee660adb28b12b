"""A file of one's own as a shape."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from turbodflash_engine.cache import KVShape
from turbodflash_engine.gguf import TensorInfo
from turbodflash_engine.layers.delta_net import delta_shape
from turbodflash_engine.layers.tensors import ID_TYPES
from turbodflash_engine.models._base import Config
from turbodflash_engine.opening import Files, Found
from turbodflash_engine.pairing import DraftFile
from turbodflash_engine.roofline.shapes import (
    ATTENTION_LAUNCHES,
    DELTA_LAUNCHES,
    END_LAUNCHES,
    EXPERT_LAUNCHES,
    MLP_LAUNCHES,
    Attending,
    Experts,
    Shape,
    together,
)

EMBEDDING, HEAD = "token_embd.weight", "output.weight"
LAYER_LAUNCHES = ATTENTION_LAUNCHES + MLP_LAUNCHES
EXPERTS = "_exps."
INJECTED = ("fc.weight", ".attn_k.weight", ".attn_v.weight")


def file_shape(found: Found) -> Shape:
    """A model that was opened."""
    tensors = found.file.tensors
    head = tensors.get(HEAD, tensors[EMBEDDING])
    inner = [info for name, info in tensors.items() if name not in (EMBEDDING, HEAD)]
    numbers = _numbers(info for info in inner if EXPERTS not in info.name)
    experts = _experts(found, [info for info in inner if EXPERTS in info.name])
    recurrent = len(found.config.state_bytes)
    layers = found.config.layers * (LAYER_LAUNCHES + EXPERT_LAUNCHES * bool(experts))
    return Shape(
        name=found.file.metadata.get("general.name", "") or found.file.path.stem,
        matrices=together(*numbers, _number(head)),
        attending=_attending(found.config),
        launches=END_LAUNCHES + layers + recurrent * (DELTA_LAUNCHES - ATTENTION_LAUNCHES),
        experts=experts,
        head=float(prod(head.shape)),
        looked_up=float(prod(tensors[EMBEDDING].shape)) if HEAD in tensors else 0.0,
        state=float(recurrent * _state(found)) if recurrent else 0.0,
    )


def _state(found: Found) -> int:
    """Bytes that a recurrent layer reads in a pass, and writes."""
    return delta_shape(found.file.metadata.for_architecture()).nbytes


def _experts(found: Found, infos: list[TensorInfo]) -> Experts | None:
    if not infos:
        return None
    meta = found.file.metadata.for_architecture()
    blocks = meta.get("block_count", found.config.layers)
    used = meta.get_per_layer("expert_used_count", 1, blocks)
    return Experts(meta.need("expert_count", int), max(used), together(*_numbers(infos)))


def draft_file_shapes(files: Files) -> tuple[Shape, Shape] | None:
    """The draft, and what it does with rows that the model has read."""
    draft = files.draft
    if draft is None:
        return None
    tensors = draft.file.tensors
    model = files.model.file.tensors
    head = tensors.get(HEAD) or model.get(HEAD) or model[EMBEDDING]
    own = _numbers(info for name, info in tensors.items() if name not in (EMBEDDING, HEAD))
    injected = [info for name, info in tensors.items() if name.endswith(INJECTED)]
    layers = len(draft.config.kv_shapes)
    shape = Shape(
        name=draft.file.path.stem,
        matrices=together(*own, _number(head)),
        attending=_attending_of(draft),
        launches=END_LAUNCHES + layers * LAYER_LAUNCHES,
        head=float(prod(head.shape)),
    )
    injection = Shape(f"injection into {shape.name}", together(*_numbers(injected)), (), 2 + layers)
    return shape, injection


def _attending(config: Config) -> tuple[Attending, ...]:
    return tuple(_one_layer(shape, shape.group * shape.kv_heads) for shape in config.kv_shapes)


def _attending_of(draft: DraftFile) -> tuple[Attending, ...]:
    meta = draft.file.metadata.for_architecture()
    shapes: tuple[KVShape, ...] = draft.config.kv_shapes
    heads = meta.need_per_layer("attention.head_count", int, len(shapes))
    return tuple(_one_layer(shape, count) for shape, count in zip(shapes, heads, strict=True))


def _one_layer(shape: KVShape, heads: int) -> Attending:
    return Attending(1, heads, shape.kv_heads, shape.key_dim, shape.window)


def _numbers(infos: Iterable[TensorInfo]) -> list[tuple[str, float]]:
    """Vectors are left out: they are read, but do not count."""
    return [_number(info) for info in infos if len(info.shape) > 1 and info.type not in ID_TYPES]


def _number(info: TensorInfo) -> tuple[str, float]:
    return info.type, float(prod(info.shape))
