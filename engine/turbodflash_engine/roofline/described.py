"""Models and drafts that are described by data: shapes without architecture code or files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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

Data = Mapping[str, Any]

F32 = 4
CONVOLVED = 3  # inputs that a delta layer remembers for its convolution


def model_shape(model: Data, *, matrices: str, head: str) -> Shape:
    """matrices, head: weight types, as GGUF spells them."""
    layers, width = model["layers"], model["width"]
    table = float(width * model["vocabulary"])
    trunk = sum(each["count"] * _dense_numbers(width, each) for each in layers)
    return Shape(
        name=model["name"],
        matrices=together((matrices, trunk), (head, table)),
        attending=tuple(_attending(each) for each in layers if "attention" in each),
        launches=END_LAUNCHES + sum(each["count"] * _launches(each) for each in layers),
        head=table,
        looked_up=0.0 if model.get("tied") else table,
        experts=_experts(width, layers, matrices),
        state=sum(each["count"] * _state(each["delta"]) for each in layers if "delta" in each),
    )


def draft_shape(draft: Data, model: Data, *, matrices: str, head: str) -> Shape:
    """A block draft for a model, whose head it uses: `head` is the type of that."""
    width, layers = model["width"], draft["layers"]
    layer = {"attention": draft, "mlp": draft["mlp"]}
    table = float(width * model["vocabulary"])
    trunk = layers * _dense_numbers(width, layer)
    return Shape(
        name=f"draft of {model['name']}",
        matrices=together((matrices, trunk), (head, table)),
        attending=(Attending(layers, draft["heads"], draft["kv_heads"], draft["head_dim"]),),
        launches=END_LAUNCHES + layers * _launches(layer),
        head=table,
    )


def injection_shape(draft: Data, model: Data, *, matrices: str) -> Shape:
    """What a draft does with rows that its model has read: joins taps, stores keys and values."""
    width, layers = model["width"], draft["layers"]
    joined = draft["taps"] * width * width
    stored = layers * 2 * width * draft["kv_heads"] * draft["head_dim"]
    return Shape(
        name=f"injection into the draft of {model['name']}",
        matrices={matrices: float(joined + stored)},
        attending=(),
        launches=2 + layers,
    )


def _dense_numbers(width: int, layer: Data) -> float:
    mixer = _delta_numbers(width, layer["delta"]) if "delta" in layer else 0
    attention = _attention_numbers(width, layer["attention"]) if "attention" in layer else 0
    router = width * layer["experts"]["count"] if "experts" in layer else 0
    return float(mixer + attention + router + 3 * width * layer["mlp"])


def _attention_numbers(width: int, shape: Data) -> int:
    inner = shape["heads"] * shape["head_dim"]
    kv = shape["kv_heads"] * shape["head_dim"]
    queries = 2 * inner if shape.get("gated") else inner
    return width * (queries + kv * (1 if shape.get("shares_kv") else 2) + inner)


def _delta_numbers(width: int, shape: Data) -> int:
    values = shape["value_heads"] * shape["head_dim"]
    convolved = _convolved(shape)
    return width * (convolved + values + 2 * shape["value_heads"] + values)


def _convolved(shape: Data) -> int:
    return (2 * shape["key_heads"] + shape["value_heads"]) * int(shape["head_dim"])


def _state(shape: Data) -> float:
    rule = shape["value_heads"] * shape["head_dim"] ** 2
    return float(F32 * (rule + CONVOLVED * _convolved(shape)))


def _attending(layer: Data) -> Attending:
    shape = layer["attention"]
    return Attending(
        layer["count"],
        shape["heads"],
        shape["kv_heads"],
        shape["head_dim"],
        shape.get("window", 0),
    )


def _experts(width: int, layers: list[Data], type: str) -> Experts | None:
    mixed = [layer for layer in layers if "experts" in layer]
    if not mixed:
        return None
    shape = mixed[0]["experts"]
    each = shape["count"] * 3 * width * shape["hidden"]
    numbers = float(each * sum(layer["count"] for layer in mixed))
    return Experts(shape["count"], shape["used"], {type: numbers})


def _launches(layer: Data) -> int:
    mixer = DELTA_LAUNCHES if "delta" in layer else ATTENTION_LAUNCHES
    return mixer + MLP_LAUNCHES + (EXPERT_LAUNCHES if "experts" in layer else 0)
