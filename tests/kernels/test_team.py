"""The team plays each task once, in the order of the records, with any number of threads."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turbodflash_kernels._cpu.device import CpuDevice
from turbodflash_kernels._cpu.team import address
from turbodflash_kernels._cpu.words import float_word
from turbodflash_kernels.cases import normal, random_part
from turbodflash_kernels.errors import NoKernel


def answers(device: CpuDevice) -> list[np.ndarray]:
    weight = device.pack([random_part("4-affine", 333, 256, seed=1)], 256)
    linear = device.bind("linear", weight=weight, prologue=None, bias=None)
    return [device.read(linear(device.upload(normal(n, 256, n)))).copy() for n in (1, 7, 40)]


DEVICES = {threads: CpuDevice(threads) for threads in (1, 2, 3, 5, 9)}
MOST_TASKS, WIDTH = 40, 16


@given(
    threads=st.sampled_from(list(DEVICES)),
    records=st.lists(
        st.tuples(st.integers(1, MOST_TASKS), st.sampled_from([0.5, 1.0, 2.0])), min_size=1
    ),
    times=st.integers(1, 20),
)
@settings(max_examples=60, deadline=None)
def test_every_task_of_every_record_is_done_once_and_in_their_order(threads, records, times):
    """A record adds 1 to as many numbers as it has tasks, in their places, and scales them."""
    device = DEVICES[threads]
    numbers, ones = (device.upload(np.full((MOST_TASKS, WIDTH), v, np.float32)) for v in (0, 1))
    kernel, parts = device.kernel("add", "add"), (numbers, ones)

    def step():
        for tasks, scale in records:
            words = [WIDTH, 1, float_word(scale), address(numbers), numbers.strides[0], 2]
            for part in parts:
                words += (address(part), part.strides[0], 0, 0)
            device.record(kernel, tasks, *words, rows=1)

    run, wanted = device.capture(step), np.zeros(MOST_TASKS, np.float32)
    for _ in range(times):
        run()
        for tasks, scale in records:
            wanted[:tasks] = (wanted[:tasks] + 1) * np.float32(scale)
    np.testing.assert_array_equal(device.read(numbers), np.repeat(wanted[:, None], WIDTH, 1))


@pytest.mark.parametrize(("threads", "batch"), [(2, 0), (3, 1), (1, 4), (5, 2)])
def test_the_number_of_threads_changes_no_bit(threads, batch):
    for ours, alone in zip(answers(CpuDevice(threads, batch)), answers(CpuDevice(1)), strict=True):
        np.testing.assert_array_equal(ours, alone)


@pytest.mark.parametrize("threads", [1, 2, 3, 9])
def test_a_captured_step_is_played_by_as_many_threads_as_it_says(threads, monkeypatch):
    device = CpuDevice(3)
    asked = []
    run = device._team.run
    monkeypatch.setattr(device._team, "run", lambda tape, n: (asked.append(n), run(tape, n)))
    weight = device.pack([random_part("4-affine", 333, 256, seed=1)], 256)
    linear = device.bind("linear", weight=weight, prologue=None, bias=None)
    x = device.upload(normal(5, 256, 3))
    steps = [device.capture(lambda: linear(x), n) for n in (0, threads)]
    plain, limited = (device.read(step()).copy() for step in steps)
    np.testing.assert_array_equal(limited, plain)
    assert asked == [3, threads]


def test_a_captured_step_follows_its_inputs_after_the_team_has_slept():
    device = CpuDevice(2)
    weight = device.pack([random_part("f32", 48, 64, seed=2)], 64)
    linear = device.bind("linear", weight=weight, prologue=None, bias=None)
    x = device.upload(normal(1, 64, 3))
    step = device.capture(lambda: linear(x))
    first = device.read(step()).copy()
    time.sleep(0.2)  # far beyond the team's patience
    device.write(x, 2 * normal(1, 64, 3))
    np.testing.assert_array_equal(device.read(step()), 2 * first)


def test_a_device_that_is_gone_leaves_no_thread_behind():
    before = set(threading.enumerate())
    device = CpuDevice(3)
    mine = set(threading.enumerate()) - before
    assert len(mine) == 2
    answers(device)
    del device
    for thread in mine:
        thread.join(timeout=10)
        assert not thread.is_alive()


def test_an_error_while_decoding_weights_is_raised_when_work_is_waited_for():
    device = CpuDevice(2)
    part = random_part("4-affine", 64, 64, seed=4)

    def broken(start, stop):
        raise OSError("the disk is gone")

    device.pack([type(part)(part.format, part.rows, broken)], 64)
    with pytest.raises(OSError, match="the disk is gone"):
        device.flush()
    device.flush()  # said once


def test_rows_that_a_thread_has_no_room_for_are_refused_with_both_numbers():
    device = CpuDevice(1)
    weight = device.pack([random_part("4-affine", 1, 1 << 17, seed=6)], 1 << 17)
    with pytest.raises(NoKernel, match="131072 inputs are over 65536"):
        device.bind("linear", weight=weight, prologue=None, bias=None)
    device.flush()
