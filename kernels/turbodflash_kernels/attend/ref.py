"""The meaning of the op, in the precision of q."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from turbodflash_kernels._reference import ReferenceDevice
from turbodflash_kernels._reference_kv import ReferenceKV
from turbodflash_kernels.errors import NoKernel

Floats = NDArray[Any]
Ints = NDArray[np.int32]
Look: TypeAlias = Callable[[Floats, Floats, Floats, float, "Floats | None"], Floats]


def refuse(device: ReferenceDevice, **static: object) -> str | None:
    return None


def look(q: Floats, k: Floats, v: Floats, scale: float, sinks: Floats | None) -> Floats:
    """One row's result: q [kv_heads, group, n], k and v [kv_heads, length, n], sinks [.., 1]."""
    weights, total = softmax(q @ k.swapaxes(1, 2) * q.dtype.type(scale), sinks)
    return weights @ v / total


def bind(
    device: ReferenceDevice,
    *,
    kv: ReferenceKV,
    heads: int,
    kv_heads: int,
    head_dim: int,
    scale: float,
    causal: bool = True,
    window: int = 0,
    sinks: Floats | None = None,
    look: Look = look,
) -> Callable[..., Floats]:
    per_group = (kv_heads, heads // kv_heads)
    sink_of = None if sinks is None else sinks.reshape(*per_group, 1)

    def attend(q: Floats, positions: Ints, parents: Ints | None = None) -> Floats:
        if parents is not None and not causal:
            raise NoKernel("the rows of a block see each other, those of a tree must not")
        grouped = q.reshape(len(q), *per_group, kv.format_k.padded)
        out = np.empty((len(q), *per_group, kv.format_v.padded), q.dtype)
        stop = max(int(positions.max()), int(positions[0]) + len(q) - 1) + 1
        # of a ring of which all is needed, the slots in order
        first = max(stop - kv.ring, 0) if kv.ring else 0
        there = kv.slots(np.arange(first, stop))
        # [stop - first, kv_heads, padded]
        keys, values = (side.stored(there).astype(q.dtype, copy=False) for side in (kv.k, kv.v))
        for row, position in enumerate(positions):
            last = position if causal else positions.max()
            begin = max(position + 1 - window, 0) if window else 0
            seen: slice | NDArray[np.int64] = slice(begin - first, last + 1 - first)
            if parents is not None:
                slots = np.arange(last + 1)
                slots[positions[0] :] = positions[0] + path(parents, row)
                seen = slots[begin:] - first
            # [kv_heads, length, head_dim]
            k, v = keys[seen].swapaxes(0, 1), values[seen].swapaxes(0, 1)
            out[row] = look(grouped[row], k, v, scale, sink_of)
        return kv.format_v.back(out).reshape(len(q), heads * head_dim)

    return attend


def path(parents: Ints, row: int) -> NDArray[np.int64]:
    """Rows from the root of the tree to this one."""
    rows = []
    while row >= 0:
        rows.append(row)
        row = int(parents[row])
    return np.array(rows[::-1])


def softmax(scores: Floats, sinks: Floats | None) -> tuple[Floats, Floats]:
    """Weights over the last axis, and what to divide by: sinks take their share of it."""
    highest = scores.max(axis=-1, keepdims=True)
    if sinks is not None:
        highest = np.maximum(highest, sinks)
    weights = np.exp(scores - highest)
    total = weights.sum(axis=-1, keepdims=True)
    if sinks is not None:
        total = total + np.exp(sinks - highest)
    return weights, total
