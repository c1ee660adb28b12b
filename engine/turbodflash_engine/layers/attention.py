"""Attention over a cache: norm, one matrix for q, k and v, rotation, sum, output."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import NamedTuple

import numpy as np

from turbodflash_engine.cache import DenseLayer, KVShape
from turbodflash_engine.layers.residual import closing
from turbodflash_engine.layers.tensors import Layout, Tensors
from turbodflash_kernels.device import Device
from turbodflash_kernels.op import Array, RmsNorm, Rope


class Places(NamedTuple):
    """Where the rows of a pass stand: arrays i32[n].

    slots, parents: of a tree, whose rows lie in slots in row order (see the op `attend`); in a
    chain a row lies at its position. beside: f32[n, ...], what accompanies the rows through all
    layers, if anything does.
    """

    positions: Array
    slots: Array | None = None
    parents: Array | None = None
    beside: Array | None = None


QK_NORMS = ("attn_q_norm", "attn_k_norm")

PARTIAL = 16
"""Numbers beside the values of a partial sum: its maximum, its weight, padding."""


class AttentionShape(NamedTuple):
    """width: of the residual stream. qk_norms: queries and keys are normed, head by head.

    window: a token sees so many, itself among them; 0 = all before it. scale: of the products of
    queries and keys; None = 1 / sqrt(head_dim). v_norm: values are normed head by head, by no
    weight. remembers: whether there are keys and values of its own, or it looks at another layer's.
    gated: what a head found is multiplied by the sigmoid of a gate, whose rows follow its query's.
    """

    width: int
    heads: int
    kv_heads: int
    head_dim: int
    qk_norms: bool = False
    window: int = 0
    scale: float | None = None
    v_norm: bool = False
    remembers: bool = True
    gated: bool = False

    @property
    def kv_shape(self) -> KVShape:
        """What a layer of this shape remembers."""
        group = self.heads // self.kv_heads
        return KVShape(self.kv_heads, self.head_dim, self.head_dim, self.window, group)

    @property
    def scratch_values(self) -> int:
        """Numbers alive at once for each row of a pass, beside the residual stream."""
        return 2 * sum(self.tensors.values())

    @property
    def partial_values(self) -> int:
        """Numbers for each row that are kept of a group of keys, until all are added up."""
        return self.heads * (self.head_dim + PARTIAL)

    @property
    def qkv(self) -> dict[str, int]:
        """Rows of each projection, in the order they stand in the fused matrix."""
        queries, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        own = {"attn_k": kv, "attn_v": kv} if self.remembers else {}
        return {"attn_q": queries, **own}

    @property
    def norms(self) -> tuple[str, ...]:
        """Of the heads of queries and of keys."""
        return QK_NORMS[: 1 + self.remembers] if self.qk_norms else ()

    @property
    def tensors(self) -> dict[str, int]:
        """Rows of each projection as a file holds them."""
        rows = self.qkv
        return {**rows, "attn_q": 2 * rows["attn_q"]} if self.gated else rows


def attention_layout(
    prefix: str,
    shape: AttentionShape,
    present: Container[str],
    *,
    post: str = "",
    values: bool = True,
) -> Layout:
    """present: names in the file, which may hold q, k and v apart or as one.

    post: the tensor that norms the result, if one does. values: they have a projection of their
    own; else that of the keys is theirs, too.
    """
    rows, inner = shape.tensors, shape.qkv["attn_q"]
    layout = Layout(
        {f"{prefix}attn_norm.weight": (shape.width,)}, {f"{prefix}attn_output.bias": (shape.width,)}
    )
    layout.required[f"{prefix}attn_output.weight"] = (inner, shape.width)
    if f"{prefix}attn_qkv.weight" in present and not shape.gated:
        rows = {"attn_qkv": sum(rows.values())}
    if not values:
        rows.pop("attn_v", None)
    for name, size in rows.items():
        layout.required[f"{prefix}{name}.weight"] = (shape.width, size)
        if not shape.gated:
            layout.optional[f"{prefix}{name}.bias"] = (size,)
    layout.required |= {f"{prefix}{name}.weight": (shape.head_dim,) for name in shape.norms}
    if post:
        layout.required[f"{prefix}{post}.weight"] = (shape.width,)
    return layout


class Attention:
    """x + post(output(gate * attend(qkv(norm(x))))), with K and V remembered in `memory`.

    post: the tensor that norms the result; "" = none does.
    """

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
        post: str = "",
    ) -> None:
        def norm(name: str) -> RmsNorm:
            return RmsNorm(device.upload(tensors.vector(f"{prefix}{name}.weight")), eps)

        fused = _gated if shape.gated else _fused
        self._qkv = fused(device, tensors, prefix, shape, norm("attn_norm"))
        self._width = sum(shape.qkv.values())
        self._gate = device.bind("gate", activation="sigmoid") if shape.gated else None
        q_norm, k_norm = (*map(norm, shape.norms), None, None)[:2]
        ones = np.ones(shape.head_dim, np.float32)
        self._store = device.bind(
            "rope_store",
            kv=memory.kv,
            heads=shape.heads,
            kv_heads=shape.kv_heads if shape.remembers else 0,
            head_dim=shape.head_dim,
            rope=rope,
            q_norm=q_norm,
            k_norm=k_norm,
            v_norm=RmsNorm(device.upload(ones), eps) if shape.v_norm else None,
        )
        self._attend = device.bind(
            "attend",
            kv=memory.kv,
            heads=shape.heads,
            kv_heads=shape.kv_heads,
            head_dim=shape.head_dim,
            scale=shape.head_dim**-0.5 if shape.scale is None else shape.scale,
            window=shape.window,
        )
        bias = tensors.vectors([f"{prefix}attn_output.bias"], [shape.width])
        output = device.bind(
            "linear",
            weight=device.pack(
                [tensors.part(f"{prefix}attn_output.weight")], shape.heads * shape.head_dim
            ),
            prologue=None,
            bias=None if bias is None else device.upload(bias),
        )
        self._output = closing(device, output, norm(post) if post else None)

    def remember(self, x: Array, places: Places) -> None:
        """Keys and values of x f32[n, width], and nothing else."""
        self._store(self._qkv(x)[:, : self._width], places.positions, places.slots)

    def __call__(self, x: Array, places: Places, last: int) -> Array:
        """x f32[n, width] -> f32[last, width], the last rows; all n are remembered."""
        positions, slots, parents, _ = places
        rows, first = self._qkv(x), x.shape[0] - last
        q = self._store(rows[:, : self._width], positions, slots)
        if parents is None:
            found = self._attend(q[first:], positions[first:])
        else:
            found = self._attend(q, positions, parents)[first:]
        if self._gate:
            found = self._gate(rows[first:, self._width :], found)
        return self._output(found, x[first:])


def _fused(
    device: Device, tensors: Tensors, prefix: str, shape: AttentionShape, norm: RmsNorm
) -> Callable[..., Array]:
    rows = shape.qkv
    if f"{prefix}attn_qkv.weight" in tensors:
        rows = {"attn_qkv": sum(rows.values())}
    names = [name if f"{prefix}{name}.weight" in tensors else "attn_k" for name in rows]
    parts = [tensors.part(f"{prefix}{name}.weight") for name in names]
    bias = tensors.vectors((f"{prefix}{name}.bias" for name in names), rows.values())
    return device.bind(
        "linear",
        weight=device.pack(parts, shape.width),
        prologue=norm,
        bias=None if bias is None else device.upload(bias),
    )


def _gated(
    device: Device, tensors: Tensors, prefix: str, shape: AttentionShape, norm: RmsNorm
) -> Callable[..., Array]:
    """Rows of q, k, v and gates, for q and gates alternate in the file."""
    heads = np.arange(2 * shape.heads * shape.head_dim).reshape(shape.heads, 2, shape.head_dim)
    queries, gates = (
        tensors.part(f"{prefix}attn_q.weight", heads[:, side].reshape(-1)) for side in (0, 1)
    )
    k, v = (tensors.part(f"{prefix}{name}.weight") for name in ("attn_k", "attn_v"))
    weight = device.pack([queries, k, v, gates], shape.width)
    return device.bind("linear", weight=weight, prologue=norm, bias=None)
