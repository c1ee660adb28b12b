"""Laws of mixtures of experts that the sweep over cases does not state."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from turbodflash_kernels._cpu.device import CpuDevice
from turbodflash_kernels.cases import normal, random_part
from turbodflash_kernels.device import Device, open_device
from turbodflash_kernels.errors import NoKernel
from turbodflash_kernels.moe.ref import choose
from turbodflash_kernels.op import Experts, Gated, Part, RmsNorm
from turbodflash_kernels.planar import Format, Planar

PRESENT = ["reference", "cpu"]
WIDTH, HIDDEN, EXPERTS, USED = 64, 32, 8, 3
Rows = NDArray[np.float32]


def dense(values: Rows) -> Part:
    format = Format(dense="f32")
    return Part(format, len(values), lambda start, stop: Planar(format, values[start:stop]))


def bind(device: Device, gate_up: Part, down: Part, experts: int, used: int) -> Callable[..., Rows]:
    moe = device.bind(
        "moe",
        gate_up=(Experts(device.pack([gate_up], WIDTH)),),
        down=Experts(device.pack([down], HIDDEN)),
        experts=experts,
        used=used,
        prologue=RmsNorm(device.upload(np.ones(WIDTH, np.float32)), 1e-6),
        activation="silu",
    )
    return lambda *inputs: device.read(moe(*map(device.upload, inputs))).copy()


def random_moe(device: Device, format: str = "4-affine") -> Callable[..., Rows]:
    gate_up = random_part(format, EXPERTS * 2 * HIDDEN, WIDTH, 1)
    return bind(device, gate_up, random_part(format, EXPERTS * WIDTH, HIDDEN, 2), EXPERTS, USED)


ROWS = 24
INPUTS = normal(ROWS, WIDTH, 3), 2 * normal(ROWS, EXPERTS, 4), normal(ROWS, WIDTH, 5)


@pytest.mark.parametrize("device", PRESENT)
@pytest.mark.parametrize(("format", "near"), [("4-affine", 0), ("5-zero16", 0.01)])
def test_one_expert_is_a_feed_forward_part(device: str, format: str, near: float) -> None:
    """Whose weight is 1, so that not a bit differs; but zeros of codes are taken from sums as
    floats in one, as integers in the other, and then a few activations fall to another code."""
    opened = open_device(device)
    gate_up, down = (
        random_part(format, 2 * HIDDEN, WIDTH, 1),
        random_part("8-zero128", WIDTH, HIDDEN, 2),
    )
    moe = bind(opened, gate_up, down, 1, 1)
    norm = RmsNorm(opened.upload(np.ones(WIDTH, np.float32)), 1e-6)
    into = opened.bind("linear", weight=opened.pack([gate_up], WIDTH), prologue=norm, bias=None)
    out_of = opened.bind(
        "linear", weight=opened.pack([down], HIDDEN), prologue=Gated("silu"), bias=None
    )
    x = INPUTS[0]
    expected = opened.read(out_of(into(opened.upload(x)), opened.upload(x))).copy()
    found = moe(x, np.zeros((ROWS, 1), np.float32), x)
    np.testing.assert_allclose(found, expected, rtol=0, atol=near)


@pytest.mark.parametrize("rows", [1, 2, 7, ROWS])
def test_threads_change_no_bit(rows: int) -> None:
    inputs = [values[:rows] for values in INPUTS]
    alone = random_moe(CpuDevice(1))(*inputs)
    for threads in (2, 3):
        np.testing.assert_array_equal(random_moe(CpuDevice(threads))(*inputs), alone)


@pytest.mark.parametrize("rows", [1, 2, 5, ROWS])
@pytest.mark.parametrize("device", PRESENT)
def test_experts_that_nobody_chose_are_not_read(device: str, rows: int) -> None:
    x, router, residual = (values[:rows] for values in INPUTS)
    router = router.copy()
    router[:, 4:] -= 100
    gate_up = normal(EXPERTS * 2 * HIDDEN, WIDTH, 6)
    down = normal(EXPERTS * WIDTH, HIDDEN, 7)
    expected = bind(open_device(device), dense(gate_up), dense(down), EXPERTS, USED)
    spoilt = gate_up.copy(), down.copy()
    for values in spoilt:
        values[len(values) // 2 :] = np.nan
    ours = bind(open_device(device), *map(dense, spoilt), EXPERTS, USED)
    np.testing.assert_array_equal(ours(x, router, residual), expected(x, router, residual))


@pytest.mark.parametrize("rows", [1, 5, ROWS])
@pytest.mark.parametrize("name", PRESENT)
def test_a_captured_pass_serves_any_choice(name: str, rows: int) -> None:
    device = open_device(name)
    moe = device.bind(
        "moe",
        gate_up=(Experts(device.pack([random_part("4-affine", 512, WIDTH, 1)], WIDTH)),),
        down=Experts(device.pack([random_part("4-affine", 512, HIDDEN, 2)], HIDDEN)),
        experts=EXPERTS,
        used=USED,
        prologue=None,
        activation="silu",
    )
    x, router = device.upload(INPUTS[0][:rows]), device.upload(INPUTS[1][:rows])
    step = device.capture(lambda: moe(x, router), rows=rows)
    for seed in range(3):
        other = 3 * normal(rows, EXPERTS, 40 + seed)
        device.write(router, other)
        captured = device.read(step()).copy()
        straight = device.read(moe(x, device.upload(other)))
        np.testing.assert_array_equal(captured, straight)


logits = st.floats(-50, 50, width=32) | st.sampled_from([0.0, -0.0, 1.0, -np.inf, 3e38])


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_largest_are_chosen_and_the_first_of_equal_ones(data: st.DataObject) -> None:
    """Seen through weights that give each expert a column of its own to write."""
    experts = data.draw(st.integers(1, 40))
    used = data.draw(st.integers(1, min(experts, 6)))
    values = data.draw(st.lists(logits, min_size=experts, max_size=experts))
    router = np.array([values], np.float32)
    if np.isfinite(router).sum() < used:
        return
    chosen, weights = choose(router, used)
    expected = np.zeros(64, np.float32)
    expected[chosen[0]] = weights[0]
    np.testing.assert_allclose(
        columns_of_experts(experts, used)(router), expected, rtol=2e-6, atol=1e-7
    )


def columns_of_experts(experts: int, used: int) -> Callable[[Rows], Rows]:
    """The weight of each expert: it writes silu(c) * up = 1 into the column of its number."""
    gate_up = np.zeros((experts, 2 * HIDDEN, WIDTH), np.float32)
    gate_up[:, 0, 0] = 1.0
    gate_up[:, HIDDEN, 0] = 1 + np.exp(-1.0)
    down = np.zeros((experts, WIDTH, HIDDEN), np.float32)
    down[np.arange(experts), np.arange(experts), 0] = 1.0
    device = CPU
    moe = device.bind(
        "moe",
        gate_up=(Experts(device.pack([dense(gate_up.reshape(-1, WIDTH))], WIDTH)),),
        down=Experts(device.pack([dense(down.reshape(-1, HIDDEN))], HIDDEN)),
        experts=experts,
        used=used,
        prologue=None,
        activation="silu",
    )
    x = np.zeros((1, WIDTH), np.float32)
    x[0, 0] = 1.0
    return lambda router: device.read(moe(device.upload(x), device.upload(router)))[0].copy()


CPU = open_device("cpu")


@pytest.mark.parametrize("rows", [1, 2, 5, ROWS])
def test_numbers_that_are_none_harm_nobody_else(rows: int) -> None:
    """A row of NaN stays a row of NaN."""
    x, router, residual = (values[:rows].copy() for values in INPUTS)
    x[0], router[0] = np.nan, np.nan
    moe = random_moe(CPU, "f32")
    ours = moe(x, router, residual)
    assert np.isnan(ours[0]).all()
    np.testing.assert_array_equal(ours[1:], moe(*(values[:rows] for values in INPUTS))[1:])


def test_experts_that_fill_no_tiles_are_refused() -> None:
    with pytest.raises(NoKernel, match="experts of 100 rows are not whole tiles of 16"):
        bind(CPU, random_part("f32", 128, WIDTH, 1), random_part("f32", 200, HIDDEN, 2), 2, 1)
