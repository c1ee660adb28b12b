"""Attention over every type of cache: the same bits in any company and on any instruction set."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from turbodflash_kernels._cpu import kv as kv_of_cpu
from turbodflash_kernels._cpu.device import CpuDevice
from turbodflash_kernels._cpu.library import Library
from turbodflash_kernels.attend.cases import Case
from turbodflash_kernels.cases import Values
from turbodflash_kernels.device import open_device
from turbodflash_kernels.kv import HeadFormat, kv_types
from turbodflash_kernels.kv._rotation import SIGNS_AFTER

ROWS = 18
TYPES = [(k, kv_types()[(at + 3) % 12]) for at, k in enumerate(kv_types())]
SHAPES = [(9, 3, 64), (4, 4, 64), (2, 2, 128), (12, 2, 192), (5, 1, 128)]
CASES = [
    Case(ROWS, 245, *SHAPES[at % len(SHAPES)], *types, window=100 * (at % 2))
    for at, types in enumerate(TYPES)
]
CASES += [
    Case(ROWS, 245, heads, 2, 64, type)
    for type in ("f16", "q8_0", "turbo4")
    for heads in (2, 4, 6, 8)
]
CASES += [Case(ROWS, 245, 6, 2, 64, *types) for types in (("turbo4", "f16"), ("q8_0", "turbo4"))]


def rows(values: Values, start: int, stop: int) -> Values:
    return {name: value[start:stop] for name, value in values.items()}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rows_have_the_same_bits_alone_in_blocks_and_in_a_prompt(case: Case) -> None:
    """One row, few rows and many are different kernels, with and without a decoded copy."""
    run = case.bind(open_device("cpu"))
    inputs = case.inputs(ROWS)
    whole = run(inputs)["y"]
    for size in (1, 2, 5, 16):
        for start in range(0, ROWS, size):
            some = run(rows(inputs, start, start + size))["y"]
            np.testing.assert_array_equal(some, whole[start : start + size])


@pytest.mark.parametrize("head_dim", [64, 192])
@pytest.mark.parametrize("type", ["turbo2", "turbo3", "turbo4"])
def test_halves_of_a_turbo_block_that_are_not_alike_count_both(type: str, head_dim: int) -> None:
    """Codes that no head was ever turned into: what holds is what they say, not how they came."""
    case = Case(3, 200, 6, 2, head_dim, type)
    results = []
    for name in ("cpu", "reference"):
        device = open_device(name)
        kv = device.kv(type, type, 256, 2, head_dim, head_dim)
        k, v = kv.rows(0, 256)
        random = np.random.default_rng(5)
        k, v = (random.integers(0, 256, x.shape, np.uint8) for x in (k, v))
        for block in range(0, k.shape[-1], kv.format_k.type.block_bytes):
            k[..., block : block + 2] = v[..., block : block + 2] = (0, 0x3C)  # a norm of 1
        kv.put_rows(0, k, v)
        attend = device.bind("attend", kv=kv, heads=6, kv_heads=2, head_dim=head_dim, scale=0.3)
        inputs = case.inputs(3)
        positions = device.upload(inputs["positions"][:, 0])
        results.append(device.read(attend(device.upload(inputs["q"]), positions)).copy())
    rounded = (type, head_dim) == ("turbo4", 64)  # see _cpu/integer_kernels.py
    np.testing.assert_allclose(*results, rtol=2e-5, atol=3e-5 if rounded else 2e-6)


MOST = np.float32(0.241529)  # the largest level of turbo4


def largest_codes() -> NDArray[np.uint8]:
    """A turbo4 row, of length 1, of which every number of a head of 64 is twice the largest
    level."""
    negative = np.where(SIGNS_AFTER[:64] == SIGNS_AFTER[64:], 15, 0)
    nibbles = np.concatenate([np.full(64, 15), negative]).astype(np.uint8)
    return np.concatenate([np.array([0, 0x3C], np.uint8), nibbles[::2] | nibbles[1::2] << 4])


def smallest_codes() -> NDArray[np.uint8]:
    """The negative of that row."""
    return np.concatenate([largest_codes()[:2], ~largest_codes()[2:]])


@pytest.mark.parametrize("rows", [1, 40])
def test_sums_of_whole_numbers_stay_in_32_bits(rows: int) -> None:
    """Keys are as large as can be and all products of one sign; then values are."""
    device = open_device("cpu")
    kv = device.kv("turbo4", "turbo4", 256, 1, 64, 64)
    up, down = largest_codes(), smallest_codes()
    keys = np.array([up if place % 2 else down for place in range(256)])[:, None]
    kv.put_rows(0, keys, np.array([up] * 256)[:, None])
    attend = device.bind("attend", kv=kv, heads=1, kv_heads=1, head_dim=64, scale=1 / (128 * MOST))
    twins = np.concatenate([np.ones(64), SIGNS_AFTER[:64] * SIGNS_AFTER[64:]]).astype(np.float32)
    positions = device.upload(np.full(rows, 255, np.int32))
    expected = kv.format_v.back(kv.format_v.type.decode(up))
    for size in (0, 20):  # all keys count alike, or those that are up
        q = device.upload(np.array([size * twins] * rows))
        y = device.read(attend(q, positions)).copy()
        np.testing.assert_allclose(y, np.array([expected] * rows), atol=1e-4)
    kv.put_rows(0, keys, keys)
    y = device.read(attend(device.upload(np.array([20 * twins] * rows)), positions)).copy()
    np.testing.assert_allclose(y, np.array([expected] * rows), atol=1e-4)


def test_what_is_not_finite_is_seen() -> None:
    device = open_device("cpu")
    kv = device.kv("turbo4", "turbo4", 256, 1, 64, 64)
    kv.put_rows(0, *[np.array([largest_codes()] * 20)[:, None]] * 2)
    attend = device.bind("attend", kv=kv, heads=2, kv_heads=1, head_dim=64, scale=0.1)
    q = np.ones((1, 256), np.float32)
    q[0, 5] = np.nan
    y = device.read(attend(device.upload(q), device.upload(np.array([10], np.int32))))
    assert np.isnan(y[0, :64]).all()
    assert np.isfinite(y[0, 64:]).all()


@pytest.mark.parametrize("type", ["turbo4", "turbo3", "iq4_nl", "q5_0"])
def test_instruction_sets_decode_alike(type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are looked up in other ways without AVX2, never with another result."""
    device, case = CpuDevice(1), Case(2, 100, 6, 2, 192, type)

    def decoded_for(isa: str) -> NDArray[np.float32]:
        def decoder(library: Library, side: str, format: HeadFormat) -> int:
            return library.address("_cpu.decode_kernels", side, format.type.name, isa)

        monkeypatch.setattr(kv_of_cpu, "_decoder", decoder)
        return case.bind(device)(case.inputs(2))["y"].copy()

    np.testing.assert_array_equal(decoded_for("generic"), decoded_for(device.isa))
