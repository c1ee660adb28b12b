"""Opening devices and choosing implementations."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import numpy as np
import pytest

from tests.kernels.devices import PRESENT
from turbodflash_kernels import every_op
from turbodflash_kernels._reference import ReferenceDevice
from turbodflash_kernels.cases import random_part
from turbodflash_kernels.device import open_device
from turbodflash_kernels.errors import NoDevice, NoKernel
from turbodflash_kernels.op import Array


def test_an_unknown_device_is_a_sentence_that_lists_the_known_ones() -> None:
    with pytest.raises(NoDevice, match="no device named 'tpu'") as caught:
        open_device("tpu")
    assert caught.value.hint == "there are: cpu, gpu, reference"


def test_an_op_without_an_implementation_says_why() -> None:
    class Elsewhere(ReferenceDevice):
        name = "elsewhere"
        implementations = ("missing",)

    device = Elsewhere()
    statics = {"table": device.pack([random_part("f32", 3, 32, 0)], 32), "scale": 1.0}
    with pytest.raises(NoKernel) as caught:
        device.bind("embed", **statics, kv=device.kv("f32", "f32", 1, 1, 8, 8))
    assert str(caught.value) == (
        "no kernel for embed(table=3x32, scale=1.0, kv=ReferenceKV):\n"
        "  elsewhere: there is no missing.py"
    )


@pytest.mark.parametrize("op", every_op())
def test_an_op_has_its_contract_its_meaning_and_its_cases(op: str) -> None:
    assert import_module(f"turbodflash_kernels.{op}.cases").CASES
    contract = import_module(f"turbodflash_kernels.{op}").__doc__ or ""
    assert contract.startswith(f"{op}: ")
    assert "bind(" in contract
    assert "call(" in contract


@pytest.mark.parametrize("name", PRESENT)
def test_arrays_round_trip_and_inputs_can_be_replaced(name: str) -> None:
    device = open_device(name)
    array = device.upload(np.arange(6, dtype=np.float32).reshape(2, 3))
    assert device.read(array).tolist() == [[0, 1, 2], [3, 4, 5]]
    device.write(array, np.zeros((2, 3), np.float32))
    assert not device.read(array).any()


@pytest.mark.parametrize("name", PRESENT)
def test_a_captured_step_sees_what_was_written_since(name: str) -> None:
    device = open_device(name)
    table = device.pack([random_part("8-zero128", 40, 64, 0)], 64)
    embed = device.bind("embed", table=table, scale=1.0)
    tokens = device.upload(np.array([3, 5], np.int32))
    straight = device.read(embed(device.upload(np.array([7, 9], np.int32)))).copy()

    step = device.capture(lambda: embed(tokens))
    device.read(step())
    device.write(tokens, np.array([7, 9], np.int32))
    np.testing.assert_array_equal(device.read(step()), straight)


@pytest.mark.parametrize("name", [*PRESENT, "gpu"])
@pytest.mark.parametrize("later", [1, 4])
def test_what_is_captured_while_results_are_there_leaves_them_alone(name: str, later: int) -> None:
    device = open_device(name)
    double = device.bind("gate", activation="sigmoid")
    x = device.upload(np.ones((2, 64), np.float32))

    def step() -> list[Array]:
        made = [x]
        for _ in range(6):  # the memory of most is free again afterwards
            made.append(double(made[-1], made[-1]))
        return made[3:5]

    first = device.capture(step)
    found = first()
    others = [device.capture(step) for _ in range(later)]
    before = [device.read(array).tobytes() for array in found]
    device.write(x, np.full((2, 64), 7, np.float32))
    for other in others * 2:
        results = other()
        assert device.read(results[0]).tobytes() != before[0]
    double(x, x)
    device.flush()
    assert [device.read(array).tobytes() for array in found] == before


def test_opening_the_reference_imports_no_compiler() -> None:
    program = (
        "import sys; from turbodflash_kernels.device import open_device; open_device('reference');"
        "sys.exit(bool({'numba', 'llvmlite', 'torch', 'triton'} & set(sys.modules)))"
    )
    path = ":".join(entry for entry in sys.path if entry)
    assert subprocess.run([sys.executable, "-c", program], env={"PYTHONPATH": path}).returncode == 0


@pytest.mark.parametrize("name", ["cpu", "gpu"])
def test_what_a_device_could_do_at_best_is_measured(name: str) -> None:
    probe = open_device(name).probe()
    assert probe.read_gbs() > 0
    assert probe.peak_gmacs() > 0
    assert probe.threads >= 1
    assert probe.isa


def test_the_reference_has_no_best() -> None:
    with pytest.raises(NoDevice, match="the reference device cannot be measured"):
        open_device("reference").probe()


@pytest.mark.parametrize("name", PRESENT)
def test_arrays_are_copied_side_by_side_into_some_rows_of_a_buffer(name: str) -> None:
    device = open_device(name)
    target = device.upload(np.zeros((4, 6), np.float32))
    left, right = np.ones((2, 2), np.float32), np.full((2, 4), 2, np.float32)
    device.copy(target[1:3], device.upload(left), device.upload(right))
    found = device.read(target)
    np.testing.assert_array_equal(found[1:3], np.hstack([left, right]))
    assert not found[[0, 3]].any()
