"""The meaning of the op, in the precision of qkv."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turbodflash_kernels._reference import ReferenceDevice
from turbodflash_kernels._reference_kv import ReferenceKV
from turbodflash_kernels.op import RmsNorm, Rope

Floats = NDArray[Any]
Ints = NDArray[np.int32]


def refuse(device: ReferenceDevice, **static: object) -> str | None:
    return None


def bind(
    device: ReferenceDevice,
    *,
    kv: ReferenceKV,
    heads: int,
    kv_heads: int,
    head_dim: int,
    rope: Rope,
    q_norm: RmsNorm | None = None,
    k_norm: RmsNorm | None = None,
    v_norm: RmsNorm | None = None,
    finite: bool = False,
) -> Callable[..., Floats]:
    def rope_store(qkv: Floats, positions: Ints, slots: Ints | None = None) -> Floats:
        rows = qkv.reshape(len(qkv), heads + 2 * kv_heads, head_dim)
        q, k, v = np.split(rows, [heads, heads + kv_heads], axis=1)
        where = kv.slots(positions if slots is None else slots)
        k, v = rotate(normed(k, k_norm), positions, rope), normed(v, v_norm)
        if kv_heads:
            kv.k.put(where, held(k, kv.format_k.most) if finite else k)
            kv.v.put(where, held(v, kv.format_v.most) if finite else v)
        q = kv.format_k.turned(rotate(normed(q, q_norm), positions, rope))
        return q.reshape(len(q), heads * kv.format_k.padded)

    return rope_store


def held(x: Floats, most: float) -> Floats:
    """x with 0 for NaN and for what is larger than `most`."""
    return np.where(np.abs(x) <= most, x, x.dtype.type(0))


def normed(x: Floats, norm: RmsNorm | None) -> Floats:
    """x [n, heads, head_dim], each head normed by itself."""
    if norm is None:
        return x
    rms = np.sqrt(np.mean(np.square(x), axis=-1, keepdims=True) + x.dtype.type(norm.eps))
    return x / rms * norm.weight


def rotate(x: Floats, positions: Ints, rope: Rope) -> Floats:
    """x [n, heads, head_dim] with its pairs rotated."""
    angle = positions.astype(x.dtype)[:, None] * np.asarray(rope.inv_freq, x.dtype)
    magnitude = x.dtype.type(rope.magnitude)
    cos, sin = np.cos(angle)[:, None] * magnitude, np.sin(angle)[:, None] * magnitude
    first, second = _pairs(rope)
    out = x.copy()
    out[:, :, first] = x[:, :, first] * cos - x[:, :, second] * sin
    out[:, :, second] = x[:, :, first] * sin + x[:, :, second] * cos
    return out


def _pairs(rope: Rope) -> tuple[slice, slice]:
    if rope.kind == "norm":
        return slice(0, rope.n_rot, 2), slice(1, rope.n_rot, 2)
    half = rope.n_rot // 2
    return slice(0, half), slice(half, rope.n_rot)
