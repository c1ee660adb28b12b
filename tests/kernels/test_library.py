"""Machine code is kept, found again, and forgotten when it is old."""

from __future__ import annotations

import os
import stat

import numpy as np
import pytest

from turbodflash_kernels._cpu import library
from turbodflash_kernels._cpu.library import Library
from turbodflash_kernels._cpu.team import address
from turbodflash_kernels._cpu.worker import Job


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("TURBODFLASH_CACHE", str(tmp_path))
    monkeypatch.setattr(library, "_linked", {})
    return tmp_path / "kernels"


def angles(lib: Library) -> np.ndarray:
    """cos, cos, -sin and sin of 0.5 * position 4, through the kernel."""
    position, frequency, out = np.array([4], np.int32), np.array([0.5], "f4"), np.zeros(4, "f4")
    one = int(np.float32(1).view(np.uint32))
    words = [address(position), 1, address(frequency), 1, one, address(out)]
    arguments = np.array(words, np.int64)
    lib.function(3, "rope_store.cpu", "angles", "norm")(address(arguments), 0, 0)
    return out


def test_a_kernel_is_compiled_once_and_then_read(cache, monkeypatch):
    compiled: list[str] = []
    first = angles(Library(compiled.append))
    np.testing.assert_allclose(first, [np.cos(2), np.cos(2), -np.sin(2), np.sin(2)], atol=1e-7)
    assert compiled == ["angles"]

    # the same symbol is linked once a process; another process is played by another name
    code = next(cache.glob("*/*.o")).read_bytes()
    assert (
        Library()._object(
            Job(next(cache.glob("*/*.o")).stem, "rope_store.cpu", "angles", ("norm",))
        )
        == code
    )
    assert compiled == ["angles"]


def test_a_home_that_cannot_be_written_is_replaced_by_a_private_temporary_folder(
    monkeypatch, tmp_path
):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("TURBODFLASH_CACHE", str(blocked))
    monkeypatch.setattr(library.tempfile, "tempdir", str(tmp_path))
    assert Library()._object(
        Job("turbodflash_angles_elsewhere", "rope_store.cpu", "angles", ("norm",))
    )
    (kept,) = tmp_path.glob("turbodflash-*/kernels/*/turbodflash_angles_elsewhere.o")
    assert not kept.parent.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    assert blocked.read_text() == "not a folder"


def test_a_folder_that_others_can_write_to_is_not_used(cache):
    folder = Library().folder
    folder.chmod(0o777)
    assert Library().folder != folder


def test_code_is_private_to_its_owner(cache):
    Library()._object(Job("turbodflash_angles_private", "rope_store.cpu", "angles", ("norm",)))
    mode = next(cache.glob("*/*.o")).stat().st_mode
    assert not mode & (stat.S_IWGRP | stat.S_IWOTH)


def test_code_of_old_versions_is_removed_when_a_new_one_compiles(cache):
    old, recent = cache / "avx2-0123", cache / "avx2-4567"
    for folder in (old, recent):
        folder.mkdir(parents=True)
    long_ago = 1_500_000_000
    os.utime(old, (long_ago, long_ago))
    Library()._object(Job("turbodflash_angles_anew", "rope_store.cpu", "angles", ("norm",)))
    assert not old.exists()
    assert recent.exists()


def test_the_folder_depends_on_the_instruction_set(cache, monkeypatch):
    folders = set()
    for level in library.isa.available():
        monkeypatch.setenv("TURBODFLASH_ISA", level)
        folders.add(Library().folder)
    assert len(folders) == len(library.isa.available())
