"""The meaning of the op, row by row, in the precision of x."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from turbodflash_kernels._reference import ReferenceDevice
from turbodflash_kernels._reference_state import Memory, ReferenceState
from turbodflash_kernels.op import DeltaShape, RmsNorm

Floats = NDArray[Any]
Ints = NDArray[np.int32]


def refuse(device: ReferenceDevice, **static: object) -> str | None:
    return None


def bind(
    device: ReferenceDevice,
    *,
    state: ReferenceState,
    taps: Floats,
    dt_bias: Floats,
    decay: Floats,
    norm: RmsNorm,
    eps: float,
) -> Callable[..., Floats]:
    shape = state.shape
    net = Net(shape, taps, dt_bias, decay, eps)

    def delta_net(x: Floats, parents: Ints | None = None) -> Floats:
        settled, carried, taken, now = map(int, state.counts)
        if state.seen != now:
            state.memory, _ = follow(net, state.memory, state.waiting[:settled])
            state.seen = now
        u, z, gates = np.split(x, [shape.channels, shape.channels + shape.inner], axis=1)
        rows = np.concatenate([u, gates], axis=1)
        state.memory, first = follow(net, state.memory, rows[:taken])
        before, _ = follow(net, state.memory, state.waiting[:carried])
        if parents is not None:
            rest = branch(net, before, rows, parents)
        else:
            _, rest = follow(net, before, rows[taken:])
        state.waiting[carried : carried + len(rest)] = rows[taken:]
        o = np.concatenate([first, rest])
        return gated(o, z.reshape(o.shape), norm).reshape(len(x), -1)

    return delta_net


def follow(net: Net, memory: Memory, rows: Floats) -> tuple[Memory, Floats]:
    """The memory after these rows, and their heads [n, value_heads, head_dim]."""
    heads = np.empty((len(rows), net.shape.value_heads, net.shape.head_dim), rows.dtype)
    for row, found in zip(rows, heads, strict=True):
        memory, found[:] = net(memory, row)
    return memory, heads


def branch(net: Net, memory: Memory, rows: Floats, parents: Ints) -> Floats:
    """The heads of a tree whose root follows this memory."""
    memories: list[Memory] = []
    heads = []
    for row, parent in zip(rows, parents, strict=True):
        after, o = net(memories[parent] if parent >= 0 else memory, row)
        memories.append(after)
        heads.append(o)
    return np.array(heads)


def gated(o: Floats, z: Floats, norm: RmsNorm) -> Floats:
    rms = np.sqrt(np.mean(np.square(o), axis=-1, keepdims=True) + o.dtype.type(norm.eps))
    return o / rms * norm.weight * silu(z)


class Net(NamedTuple):
    """One row after another."""

    shape: DeltaShape
    taps: Floats
    dt_bias: Floats
    decay: Floats
    eps: float

    def __call__(self, memory: Memory, row: Floats) -> tuple[Memory, Floats]:
        """row [pending] -> the memory after it, and its heads [value_heads, head_dim]."""
        shape, (window, s) = self.shape, memory
        u, beta, alpha = np.split(row, [shape.channels, shape.channels + shape.value_heads])
        seen = np.concatenate([window, u[None]])
        q, k, v = self._heads(silu((self.taps * seen).sum(axis=0)))
        g = np.exp(self.decay * softplus(alpha + self.dt_bias))
        s = s * g[:, None, None]
        told = sigmoid(beta)[:, None] * (v - np.einsum("hkv,hk->hv", s, k))
        s = s + k[:, :, None] * told[:, None, :]
        return (seen[1:], s), np.einsum("hkv,hk->hv", s, q)

    def _heads(self, c: Floats) -> tuple[Floats, Floats, Floats]:
        """Queries, keys and values, each [value_heads, head_dim]."""
        keys, heads = self.shape.key_heads, c.reshape(-1, self.shape.head_dim)
        q, k, v = np.split(heads, [keys, 2 * keys])
        of = np.arange(len(v)) % keys
        scale = c.dtype.type(self.shape.head_dim**-0.5)
        return self._unit(q)[of] * scale, self._unit(k)[of], v

    def _unit(self, x: Floats) -> Floats:
        return x / np.sqrt(np.square(x).sum(axis=-1, keepdims=True) + x.dtype.type(self.eps))


def sigmoid(x: Floats) -> Floats:
    return 1 / (1 + np.exp(-x))


def silu(x: Floats) -> Floats:
    return x * sigmoid(x)


def softplus(x: Floats) -> Floats:
    return np.where(x > 20, x, np.log1p(np.exp(np.minimum(x, 20))))
