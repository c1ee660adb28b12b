"""A delta net is what the literature says of it, in whatever pieces and states it comes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.kernels.devices import PRESENT, poisoned
from turbodflash_kernels._reference import ReferenceDevice
from turbodflash_kernels.cases import normal
from turbodflash_kernels.delta_net.ref import Net, sigmoid, softplus
from turbodflash_kernels.device import Device, State
from turbodflash_kernels.errors import NoKernel
from turbodflash_kernels.op import DeltaShape, RmsNorm

Floats = NDArray[Any]
SHAPE = DeltaShape(key_heads=2, value_heads=4, head_dim=32, taps=4)
ROWS, CHUNK = 512, 64
FORGETFUL = -np.array([0.01, 0.3, 1.5, 6.0], np.float32)


def bound(device: Device, room: int = 1) -> tuple[Any, State, Any]:
    counts = device.upload(np.zeros(4, np.int32))
    state = device.new_state(SHAPE, counts, room)
    delta_net = device.bind(
        "delta_net",
        state=state,
        taps=device.upload(normal(SHAPE.taps, SHAPE.channels, 1)),
        dt_bias=device.upload(normal(1, SHAPE.value_heads, 2)[0]),
        decay=device.upload(FORGETFUL),
        norm=RmsNorm(device.upload(np.ones(SHAPE.head_dim, np.float32)), 1e-6),
        eps=1e-6,
    )
    return delta_net, state, counts


def heads_of(rows: Floats) -> tuple[Floats, ...]:
    """q, k, v [n, value_heads, head_dim], logarithms of what stays and shares of what is told."""
    net = Net(SHAPE, normal(SHAPE.taps, SHAPE.channels, 1), normal(1, 4, 2)[0], FORGETFUL, 1e-6)
    u = np.concatenate([np.zeros((SHAPE.taps - 1, SHAPE.channels)), rows[:, : SHAPE.channels]])
    windows = np.stack([u[i : i + SHAPE.taps] for i in range(len(rows))])
    c = (net.taps * windows).sum(axis=1)
    q, k, v = zip(*(net._heads(row * sigmoid(row)) for row in c), strict=True)
    beta, alpha = np.split(rows[:, SHAPE.channels + SHAPE.inner :], 2, axis=1)
    return *map(np.array, (q, k, v)), FORGETFUL * softplus(alpha + net.dt_bias), sigmoid(beta)


def in_chunks(rows: Floats) -> Floats:
    """The same recurrence by triangular systems over 64 rows, in float64: [n, heads, head_dim]."""
    q, k, v, g, b = heads_of(rows)
    out = np.empty_like(v)
    for head in range(SHAPE.value_heads):
        s = np.zeros((SHAPE.head_dim, SHAPE.head_dim))
        for first in range(0, len(rows), CHUNK):
            at = (slice(first, first + CHUNK), head)
            total = np.cumsum(g[at])
            apart = np.exp(total[:, None] - total[None, :])
            told = np.tril(b[at][:, None] * (k[at] @ k[at].T) * apart, -1)
            solve = np.linalg.inv(np.eye(CHUNK) + told)
            new = solve @ (b[at][:, None] * v[at])
            new -= solve @ (b[at][:, None] * k[at] * np.exp(total)[:, None]) @ s
            seen = np.tril((q[at] @ k[at].T) * apart)
            out[at] = (q[at] * np.exp(total)[:, None]) @ s + seen @ new
            s = np.exp(total[-1]) * s + (k[at] * np.exp(total[-1] - total)[:, None]).T @ new
    return out


@pytest.mark.parametrize("name", PRESENT)
def test_five_hundred_rows_are_those_of_the_chunked_form(name: str) -> None:
    rows = normal(ROWS, SHAPE.width, 5)
    o = in_chunks(rows.astype(np.float64))
    z = rows[:, SHAPE.channels : SHAPE.channels + SHAPE.inner].astype(np.float64).reshape(o.shape)
    expected = o / np.sqrt(np.square(o).mean(axis=-1, keepdims=True) + 1e-6) * z * sigmoid(z)
    device = poisoned(name)
    delta_net, _, counts = bound(device)
    device.write(counts, np.array([0, 0, ROWS, 1], np.int32))
    found = device.read(delta_net(device.upload(rows))).reshape(expected.shape)
    worst = np.abs(found - expected).max(axis=(0, 2))
    single = np.abs(plainly(rows) - expected).max(axis=(0, 2))  # what float32 costs by itself
    assert (worst <= np.maximum(1e-5, 2 * single)).all()


def plainly(rows: Floats) -> Floats:
    device = ReferenceDevice()
    delta_net, _, counts = bound(device)
    counts[:] = [0, 0, ROWS, 1]
    found: Floats = delta_net(rows).reshape(len(rows), SHAPE.value_heads, SHAPE.head_dim)
    return found


@pytest.mark.parametrize("name", PRESENT)
def test_a_round_is_settled_once(name: str) -> None:
    """A pass that is repeated, as after a failure, takes in nothing twice."""
    device = poisoned(name)
    rows = device.upload(normal(3, SHAPE.width, 5))
    delta_net, state, counts = bound(device, 2)
    for _ in range(2):
        device.write(counts, np.array([0, 0, 1, 1], np.int32))
        delta_net(rows[:2])
        state.clear()
    device.write(counts, np.array([1, 0, 0, 2], np.int32))
    first = device.read(delta_net(rows[2:])).copy()
    assert state.seen == 2
    window, s = (part.copy() for part in state.read())
    again = device.read(delta_net(rows[2:])).copy()
    np.testing.assert_array_equal(again, first)
    for before, after in zip((window, s), state.read(), strict=True):
        np.testing.assert_array_equal(after, before)


@pytest.mark.parametrize("name", PRESENT)
def test_what_was_put_is_read(name: str) -> None:
    device = poisoned(name)
    state = device.new_state(SHAPE, device.upload(np.zeros(4, np.int32)), 5)
    window, s = normal(3, SHAPE.channels, 1), normal(SHAPE.inner, 32, 2).reshape(SHAPE.s)
    waiting = normal(4, SHAPE.pending, 3)
    state.put(window, s)
    state.put_pending(waiting)
    saved = state.save(3)
    state.gather([1, 3])
    np.testing.assert_array_equal(state.pending(2), waiting[[1, 3]])
    state.clear()
    assert not any(part.any() for part in state.read())
    state.restore(saved)
    np.testing.assert_array_equal(state.pending(3), waiting[:3])
    for found, expected in zip(state.read(), (window, s), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert state.nbytes >= SHAPE.nbytes


def test_heads_that_are_no_whole_blocks_are_refused_on_a_cpu() -> None:
    device = poisoned("cpu")
    with pytest.raises(NoKernel, match="heads of 24 are not whole blocks of 16"):
        device.new_state(DeltaShape(1, 1, 24, 4), device.upload(np.zeros(4, np.int32)), 1)


def test_more_rows_than_a_thread_has_room_for_are_refused_on_a_cpu() -> None:
    device = poisoned("cpu")
    state = device.new_state(DeltaShape(1, 1, 256, 4), device.upload(np.zeros(4, np.int32)), 64)
    with pytest.raises(NoKernel, match="64 pending rows of heads of 256 are over 62"):
        device.bind("delta_net", state=state)
