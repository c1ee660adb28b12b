"""The program as a process: pipes, signals and exit codes as a shell sees them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLAY = """
import sys, time
from pathlib import Path
import turbodflash_engine, turbodflash_cli.run
from tests.cli.fake import FakeSession, finished
from turbodflash_engine import Text
from turbodflash_cli.app import main

def forever():
    while True:
        yield Text("word ")
        time.sleep(0.01)

class Endless(FakeSession):
    def _events(self, script):
        try:
            yield from forever()
        except GeneratorExit:
            self.last = finished("interrupted")
            raise

vars(turbodflash_engine)["open_session"] = lambda options, progress: {session}
turbodflash_cli.run.find_model = lambda terminal, flags: Path("tiny.gguf")
sys.exit(main())
"""


def start(*argv: str, session: str = "FakeSession()") -> subprocess.Popen[str]:
    """The program over a scripted session, in a process of its own."""
    paths = [str(ROOT / part) for part in ("", "engine", "kernels")]
    return subprocess.Popen(
        [sys.executable, "-c", PLAY.replace("{session}", session), *argv],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )


def read(program: subprocess.Popen[str], characters: int) -> str:
    """The first characters of its stdout."""
    assert program.stdout is not None
    return program.stdout.read(characters)


def test_a_whole_run() -> None:
    with start("-p", "hi") as program:
        out, err = program.communicate(timeout=60)
    assert out == "Hello\n"
    assert err == "\n[ Prompt: 100.0 t/s | Generation: 4.0 t/s ]\n"


def test_characters_survive_any_locale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    with start("-p", "hi", session="FakeSession([Text('naïve ✓'), finished()])") as program:
        out, _ = program.communicate(timeout=60)
    assert (out, program.returncode) == ("naïve ✓\n", 0)


class TestPosix:
    """Signals and pipes."""

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_a_signal_ends_with_130_and_the_timings(self, number: signal.Signals) -> None:
        with start("-p", "hi", session="Endless()") as program:
            assert read(program, 5) == "word "
            program.send_signal(number)
            out, err = program.communicate(timeout=60)
        assert program.returncode == 130
        assert out.endswith("\n")
        assert "Traceback" not in err
        assert "| Generation: 4.0 t/s ]" in err

    def test_a_closed_pipe_ends_with_141_and_no_word(self) -> None:
        with start("-p", "hi", session="Endless()") as program:
            assert read(program, 5) == "word "
            assert program.stdout is not None
            assert program.stderr is not None
            program.stdout.close()
            assert program.stderr.read() == ""
            assert program.wait(timeout=60) == 141

    def test_a_second_ctrl_c_leaves_a_step_that_hangs(self) -> None:
        hung = "FakeSession([lambda: print('hangs', file=sys.stderr), lambda: time.sleep(600)])"
        with start("-p", "hi", session=hung) as program:
            assert program.stderr is not None
            assert program.stderr.readline() == "hangs\n"
            program.send_signal(signal.SIGINT)
            with pytest.raises(subprocess.TimeoutExpired):
                program.wait(timeout=0.5)
            program.send_signal(signal.SIGINT)
            assert program.wait(timeout=60) == 130


def test_the_module_is_the_same_program() -> None:
    paths = [str(ROOT / part) for part in ("", "engine", "kernels")]
    done = subprocess.run(
        [sys.executable, "-m", "turbodflash_cli", "--bogus"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: unknown option '--bogus'.")
