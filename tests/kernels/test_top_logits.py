"""`top_logits` against the three ops that say what it means: not a bit may differ."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.kernels.devices import PRESENT
from turbodflash_kernels.cases import normal, random_part
from turbodflash_kernels.device import Device, open_device
from turbodflash_kernels.errors import NoKernel
from turbodflash_kernels.op import RmsNorm

DEVICES = {name: open_device(name) for name in (*PRESENT, "gpu")}
COLS, ROWS = 64, 300

FORMATS = ("8-zero128", "4-affine", "5-zero16", "f16", "f32")
HEADS = {
    (name, format): device.pack(
        # the same rows twice: every logit has an equal
        [random_part(format, ROWS // 2, COLS, 1), random_part(format, ROWS // 2, COLS, 1)],
        COLS,
    )
    for name, device in DEVICES.items()
    for format in FORMATS
}
NORMS = {
    name: RmsNorm(device.upload(1 + normal(1, COLS, 5)[0]), 1e-5)
    for name, device in DEVICES.items()
}


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("format", FORMATS)
@given(
    rows=st.integers(1, 20),
    width=st.integers(1, ROWS),
    share=st.floats(0, 1),
    softcap=st.sampled_from([0.0, 1e-3, 0.5, 30.0]),
    normed=st.booleans(),
    hole=st.sampled_from([0.0, np.nan, 1e10]),
)
@settings(max_examples=8, deadline=None)
def test_it_is_the_largest_of_all_logits(name, format, rows, width, share, softcap, normed, hole):
    device, count = DEVICES[name], max(1, round(share * width))
    if name == "gpu":
        rows, count = min(rows, 2), min(count, 5)  # it is interpreted
    head = {"weight": HEADS[name, format], "prologue": NORMS[name] if normed else None}
    x = normal(rows, COLS, 2)
    x[-1, 3] += np.float32(hole)
    wanted = of_all(device, head, softcap, count, width, x)
    found = device.bind("top_logits", **head, softcap=softcap, count=count, width=width)
    for got, expected in zip(found(device.upload(x)), wanted, strict=True):
        assert device.read(got).tobytes() == expected.tobytes()


def of_all(
    device: Device, head: dict[str, Any], cap: float, count: int, width: int, x: NDArray[Any]
) -> list[NDArray[Any]]:
    """Values and ids by the words of the contract, one op after the other."""
    logits = device.bind("linear", **head, bias=None)(device.upload(x))[:, :width]
    if cap:
        logits = device.bind("softcap", cap=cap)(logits)
    return [device.read(each).copy() for each in device.bind("largest", count=count)(logits)]


@pytest.mark.parametrize("name", DEVICES)
def test_in_a_captured_step_it_looks_at_what_is_there_now(name):
    device = DEVICES[name]
    head = {"weight": HEADS[name, "8-zero128"], "prologue": NORMS[name]}
    top_logits = device.bind("top_logits", **head, softcap=0.0, count=3, width=ROWS)
    x = device.upload(normal(2, COLS, 1))
    step = device.capture(lambda: top_logits(x))
    for seed in (1, 2, 3):
        device.write(x, normal(2, COLS, seed))
        found = [device.read(each).tobytes() for each in step()]
        expected = of_all(device, head, 0.0, 3, ROWS, normal(2, COLS, seed))
        assert found == [each.tobytes() for each in expected]


def test_a_head_that_no_product_takes_is_refused():
    device = DEVICES["cpu"]
    weight = device.pack([random_part("f32", 5, 48, 1), random_part("8-zero128", 5, 48, 1)], 48)
    with pytest.raises(NoKernel, match="top_logits"):
        device.bind("top_logits", weight=weight, prologue=None, softcap=0.0, count=1, width=5)
