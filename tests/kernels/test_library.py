"""Machine code is kept, found again, and forgotten when it is old."""

from __future__ import annotations

import os
import stat

import numpy as np

from tests.kernels.angles import EXPECTED, KERNEL, angles
from turbodflash_kernels._cpu import library
from turbodflash_kernels._cpu.library import Library
from turbodflash_kernels._cpu.worker import Job


def test_a_kernel_is_compiled_once_and_then_read(cache, monkeypatch):
    compiled: list[str] = []
    kernel = Library(compiled.append).address(*KERNEL)
    np.testing.assert_allclose(angles(kernel), EXPECTED, atol=1e-7)
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
