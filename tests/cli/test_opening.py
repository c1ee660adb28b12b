"""What happens around loading: nothing needless is imported, and the process is left as it was."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import pytest

import turbodflash_engine
from tests.cli.fake import FakeSession
from turbodflash_cli.flags import ModelFlags
from turbodflash_cli.opening import find_model, open_model
from turbodflash_cli.terminal import Terminal
from turbodflash_engine import BadModel, LoadOptions

BLAS = "OPENBLAS_NUM_THREADS"


@pytest.fixture
def model(tmp_path):
    file = tmp_path / "tiny.gguf"
    file.write_bytes(b"GGUF")
    return file


@pytest.fixture
def load(monkeypatch):
    """Lets a function stand in for the engine's `open_session`; the process is tidied up after."""
    monkeypatch.setenv(BLAS, "")
    monkeypatch.delenv(BLAS)
    yield lambda stand_in: monkeypatch.setattr(
        turbodflash_engine, "open_session", stand_in, raising=False
    )
    gc.unfreeze()


def test_a_file_that_is_there_needs_nothing_of_fetching(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "turbodflash_cli.fetch", None)  # an import would fail
    assert find_model(Terminal(), ModelFlags(model=model)) == model


@pytest.mark.parametrize("also", [{"hf_repo": "a/b"}, {"hf_file": "c.gguf"}])
def test_a_file_beside_a_repository_is_refused(model, also):
    with pytest.raises(turbodflash_engine.BadUsage):
        find_model(Terminal(), ModelFlags(model=model, **also))


def test_garbage_is_collected_again_after_loading(load):
    seen = []

    def stand_in(options, progress):
        seen.append(gc.isenabled())
        return FakeSession()

    load(stand_in)
    open_model(Terminal(), LoadOptions(Path("tiny.gguf")))
    assert (seen, gc.isenabled()) == ([False], True)


def test_and_after_loading_has_failed(load):
    def stand_in(options, progress):
        raise BadModel("it is damaged")

    load(stand_in)
    with pytest.raises(BadModel):
        open_model(Terminal(), LoadOptions(Path("tiny.gguf")))
    assert gc.isenabled()


@pytest.mark.parametrize(
    ("device", "before", "after"),
    [("cpu", None, "1"), ("cpu", "4", "4"), ("reference", None, None)],
)
def test_only_the_reference_gets_threads_of_numpys_own(load, monkeypatch, device, before, after):
    if before is not None:
        monkeypatch.setenv(BLAS, before)
    load(lambda options, progress: FakeSession())
    open_model(Terminal(), LoadOptions(Path("tiny.gguf"), device=device))
    assert os.environ.get(BLAS) == after
