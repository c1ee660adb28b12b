"""Matrices as a GPU keeps them: what packing preserves, and what a product does with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.kernels.devices import poisoned
from turbodflash_kernels._gpu import layout
from turbodflash_kernels._gpu.device import GpuDevice
from turbodflash_kernels._gpu.tiles import segment_of
from turbodflash_kernels.cases import FORMATS, normal, random_part
from turbodflash_kernels.op import Part, RmsNorm
from turbodflash_kernels.planar import Planar, dequantize

ONE_LEVEL = [name for name, format in FORMATS.items() if not format.two_level]
TWO_LEVEL = [name for name, format in FORMATS.items() if format.two_level]
QUANTISED = [name for name, format in FORMATS.items() if not format.dense]


def gpu() -> Any:
    return poisoned("gpu")


def unpacked(part: Part, cols: int) -> NDArray[np.float32]:
    """The weights as `embed` reads them out of the packed matrix."""
    device = gpu()
    embed = device.bind("embed", table=device.pack([part], cols), scale=1.0)
    return device.read(embed(device.upload(np.arange(part.rows, dtype=np.int32))))


@pytest.mark.parametrize("name", ONE_LEVEL)
def test_weights_of_one_level_stay_exactly_what_they_are(name):
    part = random_part(name, 37, 96, 1)
    np.testing.assert_array_equal(unpacked(part, 96), dequantize(part.decode(0, 37)))


@pytest.mark.parametrize("name", TWO_LEVEL)
def test_of_two_levels_only_the_product_of_scales_is_rounded(name):
    part, format = random_part(name, 33, 512, 1), FORMATS[name]
    planar = part.decode(0, 33)
    reach = max(map(abs, format.table)) if format.table else 2**format.bits
    terms = reach * factor(planar.scale, planar.super_scale, format.block) * 2.0**format.exponent
    if format.affine:
        terms += factor(planar.min, planar.super_min, format.block)
    # half a step of float16 each
    assert (np.abs(unpacked(part, 512) - dequantize(planar)) <= terms * 2.0**-11).all()


def factor(block: Any, above: Any, size: int) -> NDArray[np.float32]:
    """The size of a scale or a minimum in two levels, for every weight."""
    spread = np.repeat(above.astype(np.float32), 256 // size, axis=1) * block
    return np.repeat(np.abs(spread), size, axis=1)


@pytest.mark.parametrize("name", QUANTISED)
def test_every_code_comes_out_at_its_own_place(name):
    """Codes that tell where they lie, scales 1: the product with each unit vector is a column."""
    format = FORMATS[name]
    rows, cols = 3, 512
    codes = (np.arange(rows * cols).reshape(rows, cols) * 37 >> 2).astype(np.uint8)
    codes &= np.uint8(2**format.bits - 1)
    blocks, above = (rows, cols // format.block), (rows, cols // 256)
    whole = format.two_level or format.powers
    planar = Planar(format, codes, np.ones(blocks, np.int8 if whole else np.float16))
    if format.two_level:
        planar.super_scale = np.ones(above, np.float16)
    if format.affine:
        planar.min = np.full(blocks, 1, np.int8 if format.two_level else np.float16)
        planar.super_min = np.ones(above, np.float16) if format.two_level else None
    device = gpu()
    part = Part(format, rows, lambda start, stop: planar)
    linear = device.bind("linear", weight=device.pack([part], cols), prologue=None, bias=None)
    picked = np.arange(0, cols, 17)
    x = np.zeros((len(picked), cols), np.float32)
    x[np.arange(len(picked)), picked] = 1
    y = np.concatenate([device.read(linear(device.upload(x[i : i + 16]))) for i in (0, 16)])
    np.testing.assert_array_equal(y, dequantize(planar)[:, picked[:32]].T)


@pytest.mark.parametrize("name", FORMATS)
def test_memory_is_what_was_planned(name):
    device = gpu()
    weight = device.pack([random_part(name, 64, 512, 1)], 512)
    units = 4 * 64
    assert weight.nbytes - units == device.bytes_per_weight(FORMATS[name]) * 64 * 512


def test_parts_of_a_format_share_tiles_where_they_fill_them():
    parts = [random_part("4-affine", rows, 64, rows) for rows in (32, 64, 17, 5)]
    weight = gpu().pack(parts, 64)
    assert [part.rows for part in weight.parts] == [113, 5]
    assert weight.rows == 118


def product(rows: int, cols: int, format: str = "4-affine", norm: bool = False) -> Any:
    device = gpu()
    weight = device.pack([random_part(format, rows, cols, 1)], cols)
    prologue = RmsNorm(device.upload(np.ones(cols, np.float32)), 1e-5) if norm else None
    linear = device.bind("linear", weight=weight, prologue=prologue, bias=None)
    return lambda x: device.read(linear(device.upload(x)))


@settings(max_examples=8, deadline=None)
@given(power=st.integers(-90, 90), format=st.sampled_from(["4-affine", "8-zero128", "f16"]))
def test_activations_of_any_size_keep_all_their_bits(power, format):
    x = normal(2, 96, 3)
    run = product(17, 96, format)
    np.testing.assert_array_equal(run(np.ldexp(x, power)), np.ldexp(run(x), power))


def test_a_huge_activation_costs_its_row_no_small_ones():
    x = normal(3, 96, 3)
    x[1, 5] = 3e5  # over what float16 can hold
    part = random_part("4-affine", 17, 96, 1)
    exact = x.astype(np.float64) @ dequantize(part.decode(0, 17)).astype(np.float64).T
    got = product(17, 96)(x)
    assert np.abs(got - exact)[1].max() < 3e5 * 2.0**-11
    np.testing.assert_array_equal(got[[0, 2]], product(17, 96)(x[[0, 2]]))


def test_few_rows_of_a_matrix_in_segments_have_bits_of_their_own():
    """A row alone, among others, a second time: segments are added up in one order."""
    cols = 1024
    device = gpu()
    assert segment_of(device, 40, cols) < cols
    run = product(40, cols, norm=True)
    x = normal(32, cols, 4)
    whole = run(x)
    for start, stop in ((0, 1), (0, 16), (3, 20), (31, 32)):
        np.testing.assert_array_equal(run(x[start:stop]), whole[start:stop])


def test_rows_of_a_prompt_do_not_know_how_many_they_are():
    run = product(17, 96, "5-affine")
    x = normal(140, 96, 5)
    whole = run(x)
    np.testing.assert_array_equal(run(x[:33]), whole[:33])
    np.testing.assert_array_equal(run(x[100:140]), whole[100:])


@pytest.mark.parametrize("sms", [82, 132, 170])
def test_segments_follow_from_shape_and_card(sms):
    device, _ = GpuDevice.compiling(90)
    device.card = device.card._replace(sms=sms)
    for rows, cols in ((51200, 5120), (5120, 25600), (1024, 4096), (576, 640)):
        segment = segment_of(device, rows, cols)
        assert segment % 128 == 0
        assert 1 <= -(-cols // segment) <= 8
    assert segment_of(device, 151_936, 4096) == 4096  # enough blocks without


def test_what_is_filled_up_is_zeros():
    packed = layout.pack(random_part("6-two-level-zero32", 5, 256, 1).decode(0, 5), gpu().place)
    for array in packed:
        if array is not None and array.ndim == 4:
            assert not array[:, :, 5:].any()
