"""Kernels compiled by other processes are the same kernels, whatever becomes of those processes."""

from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np
import pytest

from tests.kernels.angles import EXPECTED, KERNEL, angles
from turbodflash_kernels._cpu import helpers
from turbodflash_kernels._cpu.library import Library

ANOTHER = ("_cpu.unpack_kernels", "each")
DIES_AT_ONCE = "raise SystemExit"
DIES_OF_A_JOB = "import sys; sys.stdin.buffer.read(1)"
SAYS_HALF = "import sys; sys.stdin.buffer.read(1); sys.stdout.buffer.write(bytes([9] + [0] * 10))"


def compiling_threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith("turbodflash-compile")]


def test_promises_are_kept(cache):
    told: list[str] = []
    lib = Library(told.append, helpers=2)
    kernels = [lib.address(*KERNEL), lib.address(*ANOTHER)]
    assert lib.address(*KERNEL) == kernels[0]
    lib.wait(kernels[0])
    np.testing.assert_allclose(angles(kernels[0]), EXPECTED, atol=1e-7)
    threads = compiling_threads()
    lib.settle()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert sorted(told) == ["angles", "each"]
    assert len(list(cache.glob("*/*.o"))) == 2

    again = Library(told.append, helpers=2)  # what is kept is not promised
    np.testing.assert_allclose(angles(again.address(*KERNEL)), EXPECTED, atol=1e-7)
    assert sorted(told) == ["angles", "each"]


def test_after_the_first_use_nothing_is_promised(cache):
    lib = Library(helpers=2)
    lib.settle()
    np.testing.assert_allclose(angles(lib.address(*KERNEL)), EXPECTED, atol=1e-7)
    assert not compiling_threads()


@pytest.mark.parametrize("program", [DIES_AT_ONCE, DIES_OF_A_JOB, SAYS_HALF])
def test_what_a_process_does_not_compile_is_compiled_here(cache, monkeypatch, program):
    monkeypatch.setattr(helpers, "_START", program)
    lib = Library(helpers=2)
    kernels = [lib.address(*KERNEL), lib.address(*ANOTHER)]
    lib.settle()
    np.testing.assert_allclose(angles(kernels[0]), EXPECTED, atol=1e-7)
    assert len(list(cache.glob("*/*.o"))) == 2


def test_a_python_that_cannot_be_started_is_done_without(cache, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(cache / "no such program"))
    lib = Library(helpers=2)
    kernel = lib.address(*KERNEL)
    lib.settle()
    np.testing.assert_allclose(angles(kernel), EXPECTED, atol=1e-7)


def test_a_folder_that_cannot_be_written_costs_nothing_but_the_next_start(cache, monkeypatch):
    blocked = cache.parent / "file"
    blocked.write_text("not a folder")
    monkeypatch.setattr(Library, "folder", blocked)
    lib = Library(helpers=1)
    kernel = lib.address(*KERNEL)
    lib.settle()
    np.testing.assert_allclose(angles(kernel), EXPECTED, atol=1e-7)


def test_a_kernel_that_another_program_compiled_meanwhile_is_taken(cache):
    first, second = Library(), Library(helpers=1)
    kept = second.folder
    promised = second.address(*ANOTHER), second.address(*KERNEL)
    first.address(*KERNEL)  # long before the only process comes to it, or while it is at it
    second.settle()
    np.testing.assert_allclose(angles(promised[1]), EXPECTED, atol=1e-7)
    assert len(list(kept.glob("*.o"))) == 2


INTERRUPTED = """
import time
from turbodflash_kernels._cpu.library import Library

lib = Library(helpers=2)
lib.address("rope_store.cpu", "rotate", "norm")
lib.address("_cpu.chunk_kernels", "chunk")
while len(lib._helpers._processes) < 2:
    time.sleep(0.01)
print(*(process.pid for process in lib._helpers._processes), flush=True)
raise KeyboardInterrupt
"""


def test_who_is_interrupted_leaves_no_process_behind(cache):
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}\n{INTERRUPTED}"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "KeyboardInterrupt" in done.stderr
    pids = done.stdout.split()
    assert len(pids) == 2
    assert not [pid for pid in pids if _runs(pid)]


def _runs(pid: str) -> bool:
    """Of processes that have nobody left to wait for them, `ps` lists those that are not over."""
    listed = subprocess.run(["ps", "-o", "stat=", "-p", pid], capture_output=True, text=True)
    return bool(listed.stdout.strip()) and "Z" not in listed.stdout
