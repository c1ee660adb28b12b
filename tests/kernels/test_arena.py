"""Scratch memory is handed on, and never to two at once."""

from __future__ import annotations

import mmap

import numpy as np
import pytest

from turbodflash_kernels._cpu.arena import Arena, is_scratch
from turbodflash_kernels._cpu.device import CpuDevice
from turbodflash_kernels._cpu.memory import Memory
from turbodflash_kernels._cpu.team import address
from turbodflash_kernels.cases import normal, random_part


def test_memory_comes_back_with_the_last_view():
    arena = Arena(Memory())
    array = arena.take((100, 7), np.float32)
    view, where = array[3:], array.__array_interface__["data"][0]
    del array
    assert arena.take((100, 7), np.float32).__array_interface__["data"][0] != where
    del view
    assert arena.take((700,), np.float32).__array_interface__["data"][0] == where


def test_what_is_lent_at_once_does_not_overlap():
    arena = Arena(Memory())
    sizes = [1, 3, 64, 65, 1000, 4096, 4097, 100_000]
    arrays = [arena.take((size,), np.uint8) for size in sizes for _ in range(3)]
    for value, array in enumerate(arrays):
        array.fill(value)
    assert [set(array.tolist()) for array in arrays] == [{v} for v in range(len(arrays))]
    assert all(is_scratch(array[:1]) for array in arrays)
    assert not is_scratch(np.zeros(3))


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.float32, np.int64])
def test_an_address_is_what_numpy_says(dtype: type) -> None:
    lent = Arena(Memory()).take((5, 7), dtype)
    mapped = np.frombuffer(mmap.mmap(-1, 4096), dtype)
    own = np.zeros((5, 7), dtype)
    for array in (lent, own, mapped, own[2:], lent[1:, 3:], own.T, own[::-1, ::2], own[:0], own[0]):
        assert address(array) == array.__array_interface__["data"][0]


def test_what_is_lent_is_as_it_was_asked_for() -> None:
    arena = Arena(Memory())
    for shape in ((), (0,), (3,), (0, 5), (2, 3, 4)):
        for dtype in (np.uint8, np.int32, np.float32, np.float64):
            array = arena.take(shape, dtype)
            assert (array.shape, array.dtype) == (shape, np.dtype(dtype))
            assert array.flags.c_contiguous
            assert array.flags.writeable
            assert address(array) % 64 == 0


def test_a_long_chain_of_ops_needs_the_memory_of_a_short_one():
    device = CpuDevice(1)
    weight = device.pack([random_part("4-affine", 256, 256, seed=1)], 256)
    linear = device.bind("linear", weight=weight, prologue=None, bias=None)
    x = device.upload(normal(32, 256, 1))

    def chain(length: int) -> int:
        def step():
            y = linear(x)
            for _ in range(length):
                y = linear(y, y)
            return y

        device.read(device.capture(step)())
        return device.scratch_bytes

    short = chain(3)
    assert chain(300) <= 1.5 * short


def test_passes_of_all_sizes_need_little_more_than_the_largest():
    arena = Arena(Memory())
    for rows in (512, *range(500, 16, -7), *range(16, 512, 5)):
        arrays = [arena.take((rows, width), np.float32) for width in (64, 64, 192, 256)]
        del arrays
    assert arena.nbytes <= 2.5 * 4 * 512 * (64 + 64 + 192 + 256)
