"""The program as a process: pipes, signals and exit codes as a shell sees them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib.abc import MetaPathFinder
from pathlib import Path

import pytest

import turbodflash_cli
from turbodflash_cli.app import main
from turbodflash_cli.terminal import Terminal
from turbodflash_engine import TurbodflashError

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

def stuck():
    try:
        print("loading", file=sys.stderr, flush=True)
        time.sleep(600)
    finally:
        time.sleep(600)

vars(turbodflash_engine)["open_session"] = lambda options, progress: {session}
turbodflash_cli.run.find_model = lambda terminal, flags: Path("tiny.gguf")
sys.exit(main())
"""


def start(
    *argv: str, session: str = "FakeSession()", through: tuple[str, ...] = ()
) -> subprocess.Popen[str]:
    """The program over a scripted session, in a process of its own.

    through: a command that starts it, given its words.
    """
    paths = [str(ROOT / part) for part in ("", "engine", "kernels")]
    return subprocess.Popen(
        [*through, sys.executable, "-c", PLAY.replace("{session}", session), *argv],
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

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_a_signal_while_loading_waits_for_nobody(self, number: signal.Signals) -> None:
        with start("-p", "hi", session="stuck()") as program:
            assert program.stderr is not None
            assert program.stderr.readline() == "loading\n"
            program.send_signal(number)
            out, err = program.communicate(timeout=60)
        assert (program.returncode, out, err) == (130, "", "")

    @pytest.mark.parametrize(
        ("closing", "out"), [("<&-", "Hello\n"), (">&-", ""), ("2>&-", "Hello\n"), (">&- 2>&-", "")]
    )
    def test_a_stream_may_be_closed(self, closing: str, out: str) -> None:
        with start("-p", "hi", through=("sh", "-c", f'exec "$@" {closing}', "sh")) as program:
            said, err = program.communicate(timeout=60)
        assert (program.returncode, said) == (0, out)
        assert "error" not in err

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


def test_a_full_disk_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def isatty(self) -> bool:
            return False

        def write(self, text: str) -> None:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("sys.stdout", Full())
    with pytest.raises(TurbodflashError, match="cannot write the answer: No space left on device"):
        Terminal().write("x")


class TestTheFirstMoment:
    """Until the program is imported, nothing slow stands between Ctrl-C and its exit code."""

    def test_ctrl_c_is_understood(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Impatient(MetaPathFinder):
            def find_spec(self, name: str, path: object, target: object = None) -> None:
                if name == "turbodflash_cli.program":
                    raise KeyboardInterrupt

        monkeypatch.delitem(sys.modules, "turbodflash_cli.program", raising=False)
        monkeypatch.delattr(turbodflash_cli, "program", raising=False)
        monkeypatch.setattr("sys.meta_path", [Impatient(), *sys.meta_path])
        assert main(["--version"]) == 130

    def test_the_entry_imports_nothing_slow(self) -> None:
        done = subprocess.run(
            [sys.executable, "-c", "import sys, turbodflash_cli.app; print(*sys.modules)"],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        )
        loaded = set(done.stdout.split())
        assert "turbodflash_cli.app" in loaded
        assert not loaded & {"typer", "turbodflash_engine", "turbodflash_cli.program"}
