"""Attention over a dense cache: norm, one matrix for q, k and v, rotation, sum, output."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import NamedTuple

from turbodflash_engine.cache import DenseLayer, KVShape
from turbodflash_engine.layers.tensors import Layout, Tensors
from turbodflash_kernels.device import Device
from turbodflash_kernels.op import Array, RmsNorm, Rope


class Places(NamedTuple):
    """Where the rows of a pass stand: arrays i32[n].

    slots, parents: of a tree, whose rows lie in slots in row order (see the op `attend`); in a
    chain a row lies at its position.
    """

    positions: Array
    slots: Array | None = None
    parents: Array | None = None


QK_NORMS = ("attn_q_norm", "attn_k_norm")


class AttentionShape(NamedTuple):
    """width: of the residual stream. qk_norms: queries and keys are normed, head by head."""

    width: int
    heads: int
    kv_heads: int
    head_dim: int
    qk_norms: bool = False

    @property
    def kv_shape(self) -> KVShape:
        """What a layer of this shape remembers."""
        group = self.heads // self.kv_heads
        return KVShape(self.kv_heads, self.head_dim, self.head_dim, group=group)

    @property
    def qkv(self) -> dict[str, int]:
        """Rows of each projection, in the order they stand in the fused matrix."""
        kv = self.kv_heads * self.head_dim
        return {"attn_q": self.heads * self.head_dim, "attn_k": kv, "attn_v": kv}


def attention_layout(prefix: str, shape: AttentionShape, present: Container[str]) -> Layout:
    """present: names in the file, which may hold q, k and v apart or as one."""
    rows = shape.qkv
    inner = rows["attn_q"]
    layout = Layout(
        {f"{prefix}attn_norm.weight": (shape.width,)}, {f"{prefix}attn_output.bias": (shape.width,)}
    )
    layout.required[f"{prefix}attn_output.weight"] = (inner, shape.width)
    if f"{prefix}attn_qkv.weight" in present:
        rows = {"attn_qkv": sum(rows.values())}
    for name, size in rows.items():
        layout.required[f"{prefix}{name}.weight"] = (shape.width, size)
        layout.optional[f"{prefix}{name}.bias"] = (size,)
    if shape.qk_norms:
        layout.required |= {f"{prefix}{name}.weight": (shape.head_dim,) for name in QK_NORMS}
    return layout


class Attention:
    """x + output(attend(qkv(norm(x)))), with K and V remembered in `memory`."""

    def __init__(
        self,
        device: Device,
        tensors: Tensors,
        prefix: str,
        shape: AttentionShape,
        *,
        eps: float,
        rope: Rope,
        memory: DenseLayer,
    ) -> None:
        heads = {"heads": shape.heads, "kv_heads": shape.kv_heads, "head_dim": shape.head_dim}

        def norm(name: str) -> RmsNorm:
            return RmsNorm(device.upload(tensors.vector(f"{prefix}{name}.weight")), eps)

        self._qkv = _fused(device, tensors, prefix, shape, norm("attn_norm"))
        q_norm, k_norm = map(norm, QK_NORMS) if shape.qk_norms else (None, None)
        self._store = device.bind(
            "rope_store", kv=memory.kv, **heads, rope=rope, q_norm=q_norm, k_norm=k_norm
        )
        scale = shape.head_dim**-0.5
        self._attend = device.bind("attend", kv=memory.kv, **heads, scale=scale)
        bias = tensors.vectors([f"{prefix}attn_output.bias"], [shape.width])
        self._output = device.bind(
            "linear",
            weight=device.pack(
                [tensors.part(f"{prefix}attn_output.weight")], shape.heads * shape.head_dim
            ),
            prologue=None,
            bias=None if bias is None else device.upload(bias),
        )

    def __call__(self, x: Array, places: Places, last: int) -> Array:
        """x f32[n, width] -> f32[last, width], the last rows; all n are remembered."""
        positions, slots, parents = places
        q = self._store(self._qkv(x), positions, slots)
        first = x.shape[0] - last
        if parents is not None:
            return self._output(self._attend(q, positions, parents)[first:], x[first:])
        return self._output(self._attend(q[first:], positions[first:]), x[first:])


def _fused(
    device: Device, tensors: Tensors, prefix: str, shape: AttentionShape, norm: RmsNorm
) -> Callable[..., Array]:
    rows = shape.qkv
    if f"{prefix}attn_qkv.weight" in tensors:
        rows = {"attn_qkv": sum(rows.values())}
    parts = [tensors.part(f"{prefix}{name}.weight") for name in rows]
    bias = tensors.vectors((f"{prefix}{name}.bias" for name in rows), rows.values())
    return device.bind(
        "linear",
        weight=device.pack(parts, shape.width),
        prologue=norm,
        bias=None if bias is None else device.upload(bias),
    )
