"""A quiet environment for the program, and the program itself over scripted events."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import turbodflash_engine
from tests.cli.fake import Program

NOISY = ("LLAMA_", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "HF_", "TURBODFLASH_")


@pytest.fixture(autouse=True)
def _quiet_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for name in [name for name in os.environ if name.startswith(NOISY)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Program:
    """The real program; only finding and loading a model are played."""
    ran = Program(monkeypatch)
    monkeypatch.setattr(
        "turbodflash_cli.run.find_model", lambda terminal, flags: flags.model or Path("tiny.gguf")
    )
    monkeypatch.setitem(vars(turbodflash_engine), "open_session", ran.open_session)
    return ran
