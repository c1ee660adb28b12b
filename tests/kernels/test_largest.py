"""The order of `largest`: ties, infinities, NaN, both zeros, and everything chosen."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.kernels.devices import PRESENT
from turbodflash_kernels.device import open_device

DEVICES = {name: open_device(name) for name in (*PRESENT, "gpu")}
FEW_NUMBERS = st.sampled_from([np.nan, -np.inf, np.inf, -1e38, -1.0, -0.0, 0.0, 1.0, 1e38])


def in_order(row: np.ndarray) -> list[int]:
    """All ids, best first, by the words of the contract."""
    numbers = [float("-inf") if np.isnan(number) else float(number) for number in row]
    return sorted(range(len(row)), key=lambda id: (-numbers[id], id))


@pytest.mark.parametrize("device", PRESENT)
@given(
    row=arrays(np.float32, st.integers(1, 600), elements=FEW_NUMBERS),
    share=st.floats(0, 1),
)
@settings(max_examples=60, deadline=None)
def test_numbers_descend_and_the_lowest_of_equal_ids_comes_first(device, row, share):
    count = max(1, round(share * len(row)))
    values, ids = _largest(device, row[None], count)

    expected = in_order(row)[:count]
    assert ids[0].tolist() == expected
    chosen = np.where(np.isnan(row), np.float32(-np.inf), row)[expected]
    assert values[0].tobytes() == chosen.tobytes()  # the sign of zero, too


@given(row=arrays(np.float32, st.integers(1, 150), elements=FEW_NUMBERS), more=st.integers(0, 5))
@settings(max_examples=12, deadline=None)
def test_so_do_those_of_a_gpu(row, more):
    count = min(1 + 14 * more, len(row))  # more than one round for some
    values, ids = _largest("gpu", row[None], count)
    expected = in_order(row)[:count]
    assert ids[0].tolist() == expected
    chosen = np.where(np.isnan(row), np.float32(-np.inf), row)[expected]
    assert values[0].tobytes() == chosen.tobytes()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("width", [16, 255, 257, 8193, 49_152])
def test_a_row_without_a_number_above_minus_infinity_still_gives_ids(device, width):
    for nothing in (np.nan, -np.inf):
        values, ids = _largest(device, np.full((2, width), nothing, np.float32), 10)
        assert ids.tolist() == [list(range(10))] * 2
        assert (values == -np.inf).all()


@pytest.mark.parametrize("device", DEVICES)
def test_the_best_are_found_wherever_they_stand(device):
    width, far = 20_000, [0, 15, 16, 255, 256, 8191, 8192, 16_383, 19_999]
    x = np.random.default_rng(1).standard_normal((3, width)).astype(np.float32)
    for row, numbers in enumerate(x):
        numbers[np.roll(far, row)] = np.arange(20, 20 - len(far), -1)
    _, ids = _largest(device, x, len(far))
    assert ids.tolist() == [np.roll(far, row).tolist() for row in range(3)]


@pytest.mark.parametrize("device", DEVICES)
def test_rows_may_be_columns_of_a_wider_array(device):
    wide = np.random.default_rng(2).standard_normal((4, 900)).astype(np.float32)
    opened = DEVICES[device]
    largest = opened.bind("largest", count=5)
    _, ids = largest(opened.upload(wide)[:, 100:700])
    np.testing.assert_array_equal(opened.read(ids), _largest(device, wide[:, 100:700], 5)[1])


def test_the_best_of_one_op_can_be_looked_up_by_the_next_in_a_captured_step():
    from turbodflash_kernels.cases import random_part

    for device in DEVICES.values():
        table = device.pack([random_part("4-affine", 300, 64, 1)], 64)
        embed, largest = (
            device.bind("embed", table=table, scale=1.0),
            device.bind("largest", count=3),
        )
        x = device.upload(np.zeros((1, 300), np.float32))
        step = device.capture(lambda: embed(largest(x)[1][:, 0]))  # noqa: B023 (called here)
        for token in (7, 299):
            scores = np.zeros((1, 300), np.float32)
            scores[0, token] = 1
            device.write(x, scores)
            row = device.read(step()).copy()
            straight = embed(device.upload(np.array([token], np.int32)))
            np.testing.assert_array_equal(row, device.read(straight))


def _largest(name: str, x: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    device = DEVICES[name]
    values, ids = device.bind("largest", count=count)(device.upload(x))
    return device.read(values).copy(), device.read(ids).copy()
