"""Steps that are recorded: the logic of it, with a recorder that does what it records again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.kernels.replaying import Again
from turbodflash_kernels._gpu.counters import Counters
from turbodflash_kernels._gpu.device import FEW_ROWS, GpuDevice
from turbodflash_kernels._gpu.graphs import Replayed, arrays


def test_a_step_is_launched_once_then_recorded_once_and_then_replayed():
    calls, x, again = [], torch.zeros(3), Again()

    def step() -> Any:
        calls.append(again.recorded)
        return {"y": (x + 1, [x * 2]), "none": None}

    run = Replayed(step, again)
    first = run()
    places = [array.data_ptr() for array in arrays(first)]
    assert (calls, again.recorded) == ([0], 0)
    for turn in range(1, 4):
        x += 1
        result = run()
        assert [array.tolist() for array in arrays(result)] == [[turn + 1] * 3, [2 * turn] * 3]
        assert [array.data_ptr() for array in arrays(result)] == places
        assert again.recorded == 1


def test_a_step_may_return_nothing():
    again, seen = Again(), []
    run = Replayed(lambda: seen.append(1), again)
    assert [run() for _ in range(3)] == [None] * 3
    assert again.recorded == 1


def test_what_holds_no_arrays_cannot_be_returned():
    with pytest.raises(TypeError, match="a step returned a set"):
        list(arrays([{1}]))


@pytest.mark.parametrize(("rows", "recorded"), [(1, True), (FEW_ROWS, True), (FEW_ROWS + 1, False)])
def test_passes_of_few_rows_alone_are_recorded(rows: int, recorded: bool):
    device = GpuDevice.open()
    again = device.record = Again()
    run = device.capture(lambda: None, rows=rows)
    for _ in range(3):
        run()
    assert again.recorded == recorded


def test_without_graphs_nothing_is_recorded():
    assert GpuDevice.open(graphs=False).record is None


def test_counters_are_apart_and_zero_and_can_be_cleared():
    counters = Counters(torch.device("cpu"))
    taken = [counters.take(count) for count in (1, 33, 40_000, 5)]
    assert [len(each) for each in taken] == [1, 33, 40_000, 5]
    for number, each in enumerate(taken, 1):
        assert not each.any()
        each.fill_(number)
        assert (each.storage_offset() * 4) % 128 == 0
    assert [set(each.tolist()) for each in taken] == [{1}, {2}, {3}, {4}]
    counters.clear()
    assert not any(each.any() for each in taken)


def test_several_arrays_are_read_as_one_by_one():
    device = GpuDevice.open()
    wide = device.upload(np.arange(12, dtype=np.float32).reshape(3, 4))
    ids = device.upload(np.arange(3, dtype=np.int32))
    columns, same = device.read_all([wide[:, 1:3], ids])
    np.testing.assert_array_equal(columns, device.read(wide)[:, 1:3])
    np.testing.assert_array_equal(same, [0, 1, 2])
