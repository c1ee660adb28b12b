"""The meaning of the op, in the precision of q."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turbodflash_kernels._reference import ReferenceDevice, ReferenceKV

Floats = NDArray[Any]


def refuse(
    device: ReferenceDevice,
    *,
    kv: ReferenceKV,
    heads: int,
    kv_heads: int,
    head_dim: int,
    scale: float,
) -> str | None:
    return None


def bind(
    device: ReferenceDevice,
    *,
    kv: ReferenceKV,
    heads: int,
    kv_heads: int,
    head_dim: int,
    scale: float,
) -> Callable[[Floats, NDArray[np.int32]], Floats]:
    def attend(q: Floats, positions: NDArray[np.int32]) -> Floats:
        grouped = q.reshape(len(q), kv_heads, heads // kv_heads, head_dim)
        out = np.empty_like(grouped)
        for row, position in enumerate(positions):
            # [kv_heads, length, head_dim]
            k = kv.k[: position + 1].swapaxes(0, 1).astype(q.dtype)
            v = kv.v[: position + 1].swapaxes(0, 1).astype(q.dtype)
            scores = grouped[row] @ k.swapaxes(1, 2) * q.dtype.type(scale)
            out[row] = softmax(scores) @ v
        return out.reshape(len(q), heads * head_dim)

    return attend


def softmax(scores: Floats) -> Floats:
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)
