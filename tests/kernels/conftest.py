"""Fixtures of more than one file."""

from __future__ import annotations

import pytest

from turbodflash_kernels._cpu import library


@pytest.fixture
def cache(monkeypatch, tmp_path):
    """Where kernels are kept, empty, and none linked."""
    monkeypatch.setenv("TURBODFLASH_CACHE", str(tmp_path))
    monkeypatch.setattr(library, "_linked", {})
    return tmp_path / "kernels"
