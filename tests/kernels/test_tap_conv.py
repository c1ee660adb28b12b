"""What a row of `tap_conv` may know: its own block, nothing later, nothing further back."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.devices import PRESENT
from turbodflash_kernels.cases import normal
from turbodflash_kernels.device import Device, open_device
from turbodflash_kernels.errors import NoKernel

TAPS, WIDTH, GROUP = 3, 96, 16
DYNAMIC = TAPS * WIDTH // GROUP


def convolved(device: Device, x: np.ndarray, dynamic: np.ndarray) -> np.ndarray:
    tap_conv = device.bind("tap_conv", base=device.upload(normal(TAPS, WIDTH, 1)), group=GROUP)
    return device.read(tap_conv(device.upload(x), device.upload(dynamic))).copy()


@pytest.mark.parametrize("name", [*PRESENT, "gpu"])
def test_a_row_has_the_same_bits_in_a_shorter_and_in_a_longer_block(name):
    device, x, dynamic = open_device(name), normal(40, WIDTH, 2), normal(40, DYNAMIC, 3)
    whole = convolved(device, x, dynamic)
    for rows in (1, 2, 3, 5, 8, 16, 17):
        np.testing.assert_array_equal(convolved(device, x[:rows], dynamic[:rows]), whole[:rows])


@pytest.mark.parametrize("name", [*PRESENT, "gpu"])
def test_a_change_reaches_as_many_rows_as_there_are_taps(name):
    device, x, dynamic = open_device(name), normal(8, WIDTH, 2), normal(8, DYNAMIC, 3)
    before = convolved(device, x, dynamic)
    x[4] += 1
    changed = (convolved(device, x, dynamic) != before).all(axis=1)
    assert changed.tolist() == [False] * 4 + [True] * TAPS + [False]


@pytest.mark.parametrize("name", [*PRESENT, "gpu"])
def test_dynamic_taps_lie_tap_by_tap_and_group_by_group(name):
    device, x = open_device(name), np.ones((3, WIDTH), np.float32)
    still = convolved(device, x, np.zeros((3, DYNAMIC), np.float32))
    for tap in range(TAPS):
        for group in range(WIDTH // GROUP):
            dynamic = np.zeros((3, DYNAMIC), np.float32)
            dynamic[2, tap * (WIDTH // GROUP) + group] = 100
            rows, channels = np.nonzero(abs(convolved(device, x, dynamic) - still) > 50)
            assert set(rows) == {2}
            assert set(channels) == set(range(group * GROUP, (group + 1) * GROUP))


@pytest.mark.parametrize("name", [*PRESENT, "gpu"])
def test_groups_that_do_not_divide_the_channels_are_refused_with_both_numbers(name):
    device = open_device(name)
    with pytest.raises(NoKernel, match="96 channels are not whole groups of 36"):
        device.bind("tap_conv", base=device.upload(normal(2, 96, 1)), group=36)
