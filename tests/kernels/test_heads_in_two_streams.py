"""Heads whose codes lie in two streams: what is not computed is certainly not among the best."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from turbodflash_kernels._cpu import streams
from turbodflash_kernels._cpu.device import CpuDevice
from turbodflash_kernels._cpu.weight import CpuWeight
from turbodflash_kernels.cases import normal, random_part
from turbodflash_kernels.op import Part
from turbodflash_kernels.planar import Planar

CPU = CpuDevice(2)
TOKENS = 5000  # enough for ten of several rows to be looked for

Codes = NDArray[np.uint8]
Floats = NDArray[np.float32]


def part_of(codes: Codes, scale: NDArray[np.float16], factor: float = 1.0) -> Part:
    def decode(start: int, stop: int) -> Planar:
        return Planar(streams.WHOLE, codes[start:stop], scale[start:stop])

    return Part(streams.WHOLE, len(codes), decode, factor)


def heads_of(part: Part, cols: int) -> tuple[CpuWeight, CpuWeight]:
    """In one stream, and in two."""
    whole, in_two = CPU.pack([part], cols), CPU.pack([part], cols, searched=True)
    assert in_two.parts[0].lower
    assert not whole.parts[0].lower
    return whole, in_two


def check(part: Part, x: Floats, count: int) -> None:
    """What is found with two streams are the largest of all logits of one, bit for bit."""
    whole, in_two = heads_of(part, x.shape[1])
    linear = CPU.bind("linear", weight=whole, prologue=None, bias=None)
    largest = CPU.bind("largest", count=count)
    statics: dict[str, Any] = {"prologue": None, "softcap": 0.0, "width": part.rows}
    found = CPU.bind("top_logits", weight=in_two, count=count, **statics)
    for rows in (x[:1], x):
        wanted = [CPU.read(each).copy() for each in largest(linear(CPU.upload(rows)))]
        for got, expected in zip(found(CPU.upload(rows)), wanted, strict=True):
            np.testing.assert_array_equal(CPU.read(got), expected)


@pytest.mark.parametrize("cols", [32, 96, 576])
@pytest.mark.parametrize("rows", [1, 2, 3, 5, 8, 16, 17, 70])
def test_products_have_the_same_bits(cols: int, rows: int) -> None:
    whole, in_two = heads_of(random_part("8-zero128", 333, cols, 3), cols)
    x = CPU.upload(normal(rows, cols, 1))
    results = [
        CPU.read(CPU.bind("linear", weight=head, prologue=None, bias=None)(x)).copy()
        for head in (whole, in_two)
    ]
    np.testing.assert_array_equal(*results)


def test_rows_of_a_table_have_the_same_bits() -> None:
    tables = heads_of(random_part("8-zero128", 333, 96, 3), 96)
    tokens = CPU.upload(np.arange(333, dtype=np.int32))
    rows = [CPU.read(CPU.bind("embed", table=table, scale=1.5)(tokens)) for table in tables]
    np.testing.assert_array_equal(*rows)


@given(
    seed=st.integers(0, 1000),
    cols=st.sampled_from([32, 64, 320]),
    count=st.sampled_from([1, 2, 10]),
    rows=st.integers(1, 6),
    spread=st.sampled_from([0.0, 1e-3, 1.0, 300.0]),
    near=st.sampled_from([0, 3, 20, 127]),
    factor=st.sampled_from([1.0, -0.75, 1e-4, 1e35]),
)
@settings(max_examples=60, deadline=None)
def test_the_largest_are_found(
    seed: int, cols: int, count: int, rows: int, spread: float, near: int, factor: float
) -> None:
    """near: how far codes lie from those of one row, at most: upper bits then tell little."""
    rng = np.random.default_rng(seed)
    center = rng.integers(1, 256, cols)
    codes = np.clip(center + rng.integers(-near, near + 1, (TOKENS, cols)), 0, 255).astype(np.uint8)
    scale = rng.uniform(0.5, 1, (TOKENS, cols // 32)).astype(np.float16)
    x = normal(rows, cols, seed)
    x[:, rng.integers(0, cols)] *= np.float32(1 + spread)
    check(part_of(codes, scale, factor), x, count)


@pytest.mark.parametrize("rows", [17, 31, 33, 49])
@pytest.mark.parametrize("count", [1, 2])
def test_many_rows_are_searched_as_few_are(rows: int, count: int) -> None:
    """They are searched in pieces, none of which may miss or repeat a row."""
    check(random_part("8-zero128", TOKENS, 64, 3), normal(rows, 64, 4), count)


@pytest.mark.parametrize("cols", [32, 640, 8192])
@pytest.mark.parametrize("factor", [1.0, -0.5])
def test_a_reach_is_what_upper_bits_leave_open_and_little_more(cols: int, factor: float) -> None:
    part = random_part("8-zero128", 333, cols, 3)
    planar = part.decode(0, 333)
    assert planar.scale is not None
    steps = np.repeat(planar.scale.astype(np.float64), 32, axis=1)
    left_open = np.linalg.norm((planar.codes % 4 - 1.5) * steps, axis=1) * abs(factor)
    _, in_two = heads_of(part_of(planar.codes, planar.scale, factor), cols)
    CPU.flush()
    lower = in_two.parts[0].lower
    assert lower
    reaches = lower.reaches[:333]
    assert (reaches > left_open).all()
    assert (reaches < left_open * 1.05).all()


def test_activations_that_are_all_that_upper_bits_leave_open() -> None:
    """The bound is reached: half of the rows gain all that they can, the others lose it."""
    rng = np.random.default_rng(1)
    signs = rng.choice([-1, 1], 64)
    upper = 4 * rng.integers(0, 64, (TOKENS, 64))
    outer = np.where(signs > 0, 3, 0)
    outer = np.where(np.arange(TOKENS)[:, None] % 2, outer, 3 - outer)
    codes = (upper + outer).astype(np.uint8)
    scale = np.full((TOKENS, 2), 0.01, np.float16)
    x = np.tile(signs, (4, 1)).astype(np.float32)
    x += normal(4, 64, 2) / np.float32(50)
    check(part_of(codes, scale), x, 10)


@pytest.mark.parametrize("hole", [np.nan, np.inf, -np.inf, 3e38])
def test_numbers_that_are_none(hole: float) -> None:
    rng = np.random.default_rng(2)
    codes = rng.integers(0, 256, (TOKENS, 64), np.uint8)
    scale = rng.uniform(-1, 1, (TOKENS, 2)).astype(np.float16)
    x = normal(3, 64, 5)
    x[1, 7] = hole
    check(part_of(codes, scale), x, 10)
    with np.errstate(over="ignore"):
        scale[rng.integers(0, TOKENS, 20), 1] = np.float16(hole)
    check(part_of(codes, scale), normal(3, 64, 5), 10)


def test_a_thread_more_changes_nothing() -> None:
    part, x = random_part("8-zero128", TOKENS, 96, 1), normal(2, 96, 1)
    found = []
    for threads in (1, 2, 3):
        device = CpuDevice(threads)
        head = device.pack([part], 96, searched=True)
        statics: dict[str, Any] = {"softcap": 0.0, "count": 10, "width": TOKENS - 7}
        best = device.bind("top_logits", weight=head, prologue=None, **statics)
        found.append([device.read(each).tobytes() for each in best(device.upload(x))])
    assert found[0] == found[1] == found[2]
