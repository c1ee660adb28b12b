"""Heads that fill half a block of a turbo type: codes in pairs, nearer than codes alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.kernels.devices import ALL_CACHE_TYPES, poisoned
from turbodflash_kernels.attend.cases import Case
from turbodflash_kernels.cases import normal
from turbodflash_kernels.device import Device, open_device
from turbodflash_kernels.kv import HeadFormat, kv_type, turbo2, turbo3, turbo4
from turbodflash_kernels.kv._pairs import TWINS, Pairs
from turbodflash_kernels.op import Rope

LEVELS = {"turbo4": turbo4.LEVELS, "turbo3": turbo3.LEVELS, "turbo2": turbo2.LEVELS}
CLOSER = {"turbo4": 12, "turbo3": 6, "turbo2": 2.7}
"""How many times smaller the mean squared error of normal heads is than that of single codes."""

FLOOR = {"turbo4": 0.0015, "turbo3": 0.012, "turbo2": 0.08}
"""A relative error that pairs may have where single codes happen to have less: numbers of one size,
which any one level stands for."""

HALF_FILLED = (64, 192, 576)
every_turbo = pytest.mark.parametrize("name", LEVELS)
few_examples = settings(deadline=None, max_examples=60, derandomize=True)

Floats = NDArray[np.float32]


def format_of(name: str, head_dim: int = 64) -> HeadFormat:
    return HeadFormat.of_keys(kv_type(name), head_dim)


def single_codes(format: HeadFormat, x: Floats) -> NDArray[Any]:
    """Rows as the encoder of whole blocks writes them, which other programs use for all heads."""
    return format.type.encode(format.turned(x))


def lost(found: Floats, x: Floats) -> Floats:
    """The error of each head, relative to its length, squared."""
    return np.square(found - x).sum(axis=-1) / np.square(x).sum(axis=-1)


@every_turbo
def test_a_sum_has_the_pair_of_the_closest_levels(name: str) -> None:
    levels, pairs = LEVELS[name], Pairs.of(LEVELS[name])
    first, second = np.meshgrid(np.arange(len(levels)), np.arange(len(levels)))
    every = (levels[first] + levels[second]).astype(np.float32)
    np.testing.assert_array_equal(pairs.sums, np.unique(every[every >= 0]))
    assert len(pairs.middles) == len(levels) ** 2 // 4  # a power of two
    for total, a, b in zip(pairs.sums, pairs.first, pairs.second, strict=True):
        assert a >= b
        assert a - b == np.abs(first - second)[every == total].min()
        assert levels[a] + levels[b] == total


@every_turbo
def test_the_nearest_sum_is_chosen_and_twins_have_their_sign(name: str) -> None:
    levels, pairs = LEVELS[name], Pairs.of(LEVELS[name])
    doubled = normal(40, 64, 1) * np.float32(0.2)
    code, sums = pairs.nearest(doubled)
    held = levels[code[:, :64]] + TWINS * levels[code[:, 64:]]
    np.testing.assert_array_equal(held, sums)
    every = np.unique(levels[:, None] + levels[None, :])
    best = np.abs(doubled[..., None] - every).min(axis=-1)
    np.testing.assert_allclose(np.abs(doubled - sums), best, atol=1e-7)


@every_turbo
def test_a_number_in_the_middle_goes_away_from_zero(name: str) -> None:
    pairs = Pairs.of(LEVELS[name])
    ties = np.resize(pairs.middles, (1, 64)).astype(np.float32)
    places = np.searchsorted(pairs.middles, ties)
    for sign in (1, -1):
        sums = pairs.nearest(np.float32(sign) * ties)[1]
        np.testing.assert_array_equal(sums, sign * pairs.sums[places + 1])


@st.composite
def heads(draw: st.DrawFn) -> Floats:
    """A head of any size and of many shapes."""
    row = normal(1, 64, draw(st.integers(0, 2**20)))[0]
    shape = draw(st.sampled_from(["normal", "cubes", "offset", "spike", "ramp", "constant"]))
    if shape == "cubes":
        row **= 3
    elif shape == "offset":
        row += 3
    elif shape == "spike":
        row[draw(st.integers(0, 63))] *= 50
    elif shape == "ramp":
        row = np.sort(row)
    elif shape == "constant":
        row[:] = row[0]
    return row * np.float32(10.0 ** draw(st.integers(-5, 3)))


@every_turbo
@few_examples
@given(row=heads())
def test_pairs_are_no_worse_than_single_codes(name: str, row: Floats) -> None:
    format = format_of(name)
    pairs, single = format.encode(row), single_codes(format, row)
    assert lost(format.decode(pairs), row) <= max(lost(format.decode(single), row), FLOOR[name])


@every_turbo
@few_examples
@given(row=heads())
def test_a_head_keeps_its_length(name: str, row: Floats) -> None:
    format = format_of(name)
    found = format.decode(format.encode(row))
    assert np.linalg.norm(found) == pytest.approx(np.linalg.norm(row), rel=1e-3, abs=1e-6)


@every_turbo
@few_examples
@given(row=heads())
def test_an_opposite_head_is_stored_as_the_opposite(name: str, row: Floats) -> None:
    format = format_of(name)
    found, opposite = (format.decode(format.encode(x)) for x in (row, -row))
    np.testing.assert_allclose(opposite, -found, rtol=0, atol=1e-6 * np.abs(row).max())


@every_turbo
@pytest.mark.parametrize("head_dim", HALF_FILLED)
def test_pairs_are_several_times_closer(name: str, head_dim: int) -> None:
    """In the half that they fill; numbers of whole blocks lose what they did."""
    format, x = format_of(name, head_dim), normal(300, head_dim, 4)
    pairs, single = (format.decode(rows) for rows in (format.encode(x), single_codes(format, x)))
    assert (
        CLOSER[name] * lost(pairs[:, -64:], x[:, -64:]).mean()
        < lost(single[:, -64:], x[:, -64:]).mean()
    )
    np.testing.assert_array_equal(pairs[:, :-64], single[:, :-64])


@every_turbo
@pytest.mark.parametrize("head_dim", [16, 80, 96, 128, 256, 368])
def test_heads_that_fill_no_half_have_single_codes(name: str, head_dim: int) -> None:
    format, x = format_of(name, head_dim), normal(9, head_dim, 5)
    np.testing.assert_array_equal(format.encode(x), single_codes(format, x))


@every_turbo
def test_a_head_of_zeros_is_zeros_and_a_bad_one_spoils_no_other(name: str) -> None:
    format, x = format_of(name), normal(4, 64, 6)
    x[1] = 0
    spoilt = x.copy()
    spoilt[2, 3] = np.nan
    spoilt[3, 3] = np.inf
    found = format.decode(format.encode(spoilt))
    assert not found[1].any()
    np.testing.assert_array_equal(found[:2], format.decode(format.encode(x))[:2])


def stored(device: Device, format: tuple[str, int], x: Floats) -> list[NDArray[Any]]:
    """The rows of keys and values x [n, 2, heads, head_dim], as the device stores them."""
    name, head_dim = format
    kv = device.kv(name, name, 256, x.shape[2], head_dim, head_dim)
    still = Rope("neox", head_dim, np.zeros(head_dim // 2, np.float32))
    shape = {"heads": 0, "kv_heads": x.shape[2], "head_dim": head_dim, "rope": still}
    store = device.bind("rope_store", kv=kv, **shape)
    slots = np.arange(100, 100 + len(x), dtype=np.int32)
    device.read(store(device.upload(x.reshape(len(x), -1)), device.upload(slots)))
    return list(kv.rows(100, 100 + len(x)))


@pytest.mark.parametrize("head_dim", HALF_FILLED[:2])
@every_turbo
@pytest.mark.parametrize("device", ["reference", "cpu", "gpu"])
def test_a_device_chooses_the_same_pairs(device: str, name: str, head_dim: int) -> None:
    x = normal(6, 4 * head_dim, 7).reshape(6, 2, 2, head_dim)
    x *= 10.0 ** np.arange(-3, 3, dtype=np.float32)[:, None, None, None]
    x[:, :, 1, 5] *= 20
    x[4, 0] = 0
    format = format_of(name, head_dim)
    for side, rows in enumerate(stored(open_device(device), (name, head_dim), x)):
        np.testing.assert_array_equal(rows, format.encode(x[:, side]))


@pytest.mark.parametrize("head_dim", HALF_FILLED[:2])
@every_turbo
@pytest.mark.parametrize("device", ALL_CACHE_TYPES)
def test_rows_of_single_codes_are_read_as_they_are(device: str, name: str, head_dim: int) -> None:
    """A cache that was saved before there were pairs, or that another program wrote."""
    chosen, truth = poisoned(device), open_device("reference")
    format, x = format_of(name, head_dim), normal(40, 4 * head_dim, 8).reshape(40, 2, 2, head_dim)
    rows = [single_codes(format, x[:, side]) for side in (0, 1)]
    case, results = Case(3, 37, 6, 2, head_dim, name), []
    for each in (chosen, truth):
        kv = each.kv(name, name, 256, 2, head_dim, head_dim)
        kv.put_rows(0, *rows)
        for found, expected in zip(kv.rows(0, 40), rows, strict=True):
            np.testing.assert_array_equal(found, expected)
        for found, expected in zip(kv.read(0, 40), rows, strict=True):
            np.testing.assert_array_equal(found, format.decode(expected))
        attend = each.bind("attend", kv=kv, heads=6, kv_heads=2, head_dim=head_dim, scale=0.2)
        inputs = case.inputs(3)
        positions = each.upload(inputs["positions"][:, 0])
        results.append(each.read(attend(each.upload(inputs["q"]), positions)).copy())
    # the CPU multiplies turbo4's as whole numbers there; some of these queries are nearly one-hot
    rounded = (device, name, head_dim) == ("cpu", "turbo4", 64)
    np.testing.assert_allclose(*results, rtol=1e-4, atol=3e-3 if rounded else 3e-5)
