"""Every instruction set gives the same bits; those that this machine lacks are emulated."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from llvmlite import ir

from turbodflash_kernels._cpu import codes, emit, isa, machines
from turbodflash_kernels._cpu.device import CpuDevice
from turbodflash_kernels.cases import FORMATS, normal, random_part
from turbodflash_kernels.errors import NoDevice
from turbodflash_kernels.planar import Format


def integers(fmt: Format) -> tuple[tuple[str, object], ...]:
    """What decides the integer part of a product; scales come after it, alike on all levels."""
    return (
        *(("bits", fmt.bits), ("block", fmt.block), ("table", len(fmt.table))),
        *(("zero", fmt.zero > 0), ("affine", fmt.affine)),
    )


COVERING = (
    *("4-table", "3-two-level-table", "8-zero128"),
    *("6-two-level-zero32", "5-affine", "2-two-level-nibbles"),
)
"""Formats that have among them all that an integer part may have."""

LEVELS = [level for level in isa.available() if level != "generic"] or ["generic"]
ROWS, COLS, PASSES = 40, 512, (1, 2, 7)


def product(device: CpuDevice, name: str) -> list[np.ndarray]:
    weight = device.pack([random_part(name, ROWS, COLS, seed=5)], COLS)
    linear = device.bind("linear", weight=weight, prologue=None, bias=None)
    inputs = [device.upload(normal(rows, COLS, seed=rows)) for rows in PASSES]
    return [device.read(linear(x)).copy() for x in inputs]


def generic_product(name: str) -> list[np.ndarray]:
    """Of a device whose library has this machine's kernels for all but the product."""
    device = CpuDevice(1)
    device.isa = "generic"
    return product(device, name)


def found_logits(device: CpuDevice) -> list[np.ndarray]:
    """Of a head in two streams, the largest, and all."""
    head = device.pack([random_part("8-zero128", 5000, 64, seed=5)], 64, searched=True)
    statics = {"softcap": 0.0, "count": 6, "width": 5000}
    best = device.bind("top_logits", weight=head, prologue=None, **statics)
    linear = device.bind("linear", weight=head, prologue=None, bias=None)
    inputs = [device.upload(normal(rows, 64, seed=rows)) for rows in PASSES]
    arrays = [array for x in inputs for array in (*best(x), linear(x))]
    return [device.read(array).copy() for array in arrays]


def test_no_integer_part_is_left_out() -> None:
    every, covered = (
        {each for name in names for each in integers(FORMATS[name])}
        for names in ((name for name, fmt in FORMATS.items() if not fmt.dense), COVERING)
    )
    assert covered == every


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", COVERING)
def test_levels_agree_bit_for_bit(level, name, monkeypatch):
    monkeypatch.setenv("TURBODFLASH_ISA", level)
    device = CpuDevice(1)
    assert device.isa == level
    for ours, plain in zip(product(device, name), generic_product(name), strict=True):
        np.testing.assert_array_equal(ours, plain)


@pytest.mark.parametrize("level", LEVELS)
def test_levels_find_the_same_logits(level, monkeypatch):
    monkeypatch.setenv("TURBODFLASH_ISA", level)
    plain = CpuDevice(1)
    plain.isa = "generic"
    for ours, theirs in zip(found_logits(CpuDevice(1)), found_logits(plain), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def multiply_add(builder, width, total, left, right):
    """vpdpbusd in plain IR: four unsigned times signed bytes, to each 32-bit lane."""
    words = ir.VectorType(emit.I32, width // 32)
    left, right = builder.bitcast(left, words), builder.bitcast(right, words)
    down = emit.constant_splat(24, words)
    for last in range(8, 33, 8):
        up = emit.constant_splat(32 - last, words)
        first = builder.lshr(builder.shl(left, up), down)
        second = builder.ashr(builder.shl(right, up), down)
        total = builder.add(total, builder.mul(first, second))
    return total


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of their own: emulations are nobody's kernels."""
    return tmp_path_factory.mktemp("emulated")


@pytest.mark.parametrize(
    ("level", "name"),
    [
        ("avx512_vnni", "4-affine"),
        ("avx512_vnni", "8-zero128"),
        ("avx512_vnni", "4-table"),
        ("avx512_vnni", "6-two-level-zero32"),
        ("avx_vnni", "4-affine"),
        ("avx_vnni", "2-two-level-nibbles"),
    ],
)
def test_levels_this_machine_lacks_agree_when_emulated(level, name, monkeypatch, kept):
    expected = product(CpuDevice(1), name)
    for ours, plain in zip(
        product(emulated(level, monkeypatch, kept), name), expected, strict=True
    ):
        np.testing.assert_array_equal(ours, plain)


@pytest.mark.parametrize("level", ["avx512_vnni", "avx_vnni"])
def test_levels_this_machine_lacks_find_the_same_logits(level, monkeypatch, kept):
    expected = found_logits(CpuDevice(1))
    for ours, plain in zip(found_logits(emulated(level, monkeypatch, kept)), expected, strict=True):
        np.testing.assert_array_equal(ours, plain)


def emulated(level: str, monkeypatch: pytest.MonkeyPatch, kept: Path) -> CpuDevice:
    monkeypatch.setattr(machines, "vpdpbusd", multiply_add)
    look_up = codes._look_up
    monkeypatch.setattr(codes, "_look_up", lambda b, isa, *rest: look_up(b, "generic", *rest))
    monkeypatch.setenv("TURBODFLASH_CACHE", str(kept))
    device = CpuDevice(1)
    device.isa, device.library.isa = level, f"emulated {level}"
    return device


COMPILE_FOR_ANOTHER = """
import llvmlite.binding as llvm
from turbodflash_kernels._cpu.build import compile_module
from turbodflash_kernels._cpu.streams import View
from turbodflash_kernels.cases import FORMATS
from turbodflash_kernels.linear.cpu import build

llvm.initialize_native_target()
llvm.initialize_native_asmprinter()
machine = llvm.Target.from_default_triple().create_target_machine(
    cpu="{cpu}", features="{features}", opt=3
)
kernel = build("product_quantised", View(FORMATS["{name}"]), "{level}")
print(machine.emit_assembly(compile_module(kernel, "kernel", machine)))
"""


@pytest.mark.parametrize(
    ("level", "cpu", "features", "register", "name"),
    [
        ("avx512_vnni", "cascadelake", "+avx512vnni,+avx512bw,+avx512vl", "%zmm", "4-affine"),
        ("avx512_vnni", "cascadelake", "+avx512vnni,+avx512bw,+avx512vl", "%zmm", "4-table"),
        ("avx_vnni", "alderlake", "+avxvnni", "%ymm", "8-zero128"),
    ],
)
def test_their_real_instructions_compile(level, cpu, features, register, name):
    assert platform.machine() in ("x86_64", "AMD64"), "the levels are x86's own"
    program = COMPILE_FOR_ANOTHER.format(cpu=cpu, features=features, name=name, level=level)
    target = {"NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": features}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **target, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    multiplies = [line for line in done.stdout.splitlines() if "vpdpbusd" in line]
    assert multiplies
    assert all(register in line for line in multiplies)


def test_a_level_that_does_not_exist_is_named_with_those_that_do(monkeypatch):
    monkeypatch.setenv("TURBODFLASH_ISA", "avx3")
    with pytest.raises(NoDevice, match=r"'avx3'.*generic"):
        CpuDevice(1)


@pytest.mark.parametrize(
    ("cpu", "level", "alone"),
    [
        ("znver4", "avx512_vnni", True),
        ("znver3", "avx2", False),
        ("znver4", "avx2", False),
        ("sapphirerapids", "avx512_vnni", False),
    ],
)
def test_knows_whose_prefetching_is_best_left_alone(
    cpu: str, level: str, alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isa, "choose", lambda: level)
    monkeypatch.setattr(isa.llvm, "get_host_cpu_name", lambda: cpu)
    assert isa.prefetches_best_alone() is alone
