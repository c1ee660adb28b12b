"""`feed_forward` against the two products that say what it means: not a bit may differ."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turbodflash_kernels._cpu import isa
from turbodflash_kernels._cpu.device import CpuDevice
from turbodflash_kernels.cases import normal, random_part
from turbodflash_kernels.feed_forward.composed import compose
from turbodflash_kernels.op import RmsNorm

COLS, WIDTH = 256, 33


def at(level: str) -> CpuDevice:
    device = CpuDevice(2)
    device.isa = level
    return device


LEVELS = [level for level in isa.available() if level != "generic"] or ["generic"]
DEVICES = {level: at(level) for level in LEVELS}


@pytest.mark.parametrize("level", DEVICES)
@pytest.mark.parametrize("format", ["4-affine", "8-zero128", "6-two-level-zero32"])
@given(
    rows=st.integers(1, 140),
    blocks=st.integers(1, 20),
    activation=st.sampled_from(["silu", "gelu"]),
    normed=st.booleans(),
    biased=st.booleans(),
)
@settings(max_examples=12, deadline=None)
def test_it_is_two_products(level, format, rows, blocks, activation, normed, biased):
    device, hidden = DEVICES[level], 32 * blocks
    wide = [replace(random_part(format, hidden, COLS, seed), factor=0.75) for seed in (1, 2)]
    statics = {
        "gate_up": device.pack(wide, COLS),
        "down": device.pack([random_part("4-affine", WIDTH, hidden, 3)], hidden),
        "prologue": RmsNorm(device.upload(1 + normal(1, COLS, 5)[0]), 1e-5) if normed else None,
        "activation": activation,
        "gate_up_bias": None,
        "down_bias": device.upload(normal(1, WIDTH, 6)[0]) if biased else None,
    }
    x, residual = device.upload(normal(rows, COLS, 2)), device.upload(normal(rows, WIDTH, 4))
    wanted = device.read(compose(device, **statics)(x, residual)).copy()
    found = device.read(device.bind("feed_forward", **statics)(x, residual))
    assert found.tobytes() == wanted.tobytes()
