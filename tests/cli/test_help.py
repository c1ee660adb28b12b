"""The help pages, word for word; and that nothing heavy is loaded to print them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.fake import Program
from tests.golden_files import GOLDEN
from turbodflash_cli.argv import ROOT
from turbodflash_cli.program import GRAMMARS
from turbodflash_engine import CACHE_TYPES

PAGES = GOLDEN / "cli"
ROOT_FOLDER = Path(__file__).parents[2]
HEAVY = ("numpy", "numba", "llvmlite", "torch", "prompt_toolkit", "tokenizers", "jinja2", "gguf")
HEAVY_FOR_TYPER = ("pydantic", "rich")


@pytest.mark.parametrize("argv", ["-h", "--help-all", "bench -h", "inspect -h"])
def test_the_page_is_as_kept(program: Program, argv: str) -> None:
    """After a wanted change: write the new page to the file and look at the difference."""
    result = program(*argv.split())
    name = argv.replace(" ", "").replace("--", "-").replace("-", "_").strip("_") + ".txt"
    assert (result.code, result.err) == (0, "")
    assert result.out == (PAGES / name).read_text(encoding="utf-8")


def test_every_spelling_is_on_the_long_page(program: Program) -> None:
    page = program("--help-all").out.replace(",", " ").split()
    grammar = GRAMMARS[ROOT]
    assert grammar is not None
    former = {name for flag in grammar.flags.values() for name in flag.former}
    assert set(grammar.flags) - former <= set(page)
    assert not former & set(page)


def test_the_short_page_fits_a_person(program: Program) -> None:
    page = program("-h").out
    assert len(page.splitlines()) <= 100
    assert all(len(line) <= 80 for line in page.splitlines())


def test_help_has_no_colours(program: Program) -> None:
    assert "\x1b" not in program("-h", tty="out err").out


def test_the_version_is_on_stdout(program: Program) -> None:
    result = program("--version")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("turbodflash ")


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Python with these words, and the program where it can import it."""
    paths = [str(ROOT_FOLDER / part) for part in ("", "engine", "kernels")]
    return subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment},
        capture_output=True,
        text=True,
        check=True,
    )


def loaded_after(*argv: str) -> list[str]:
    """Modules that are loaded when the program has done its work."""
    script = "import sys; from turbodflash_cli.app import main; main(); print(*sys.modules)"
    return run("-c", script, *argv).stdout.splitlines()[-1].split()


@pytest.mark.parametrize("argv", [["--help"], ["--help-all"], ["bench", "-h"], ["--bogus"]])
def test_help_loads_nothing_heavy(argv: list[str]) -> None:
    loaded = loaded_after(*argv)
    assert "turbodflash_cli.app" in loaded
    assert set(loaded) & {*HEAVY, *HEAVY_FOR_TYPER} == set()


def test_parsing_loads_nothing_heavy() -> None:
    """Reading options is on the way to the first token: typer's own converters would cost 0.2 s."""
    loaded = loaded_after("-f", "no such file", "--temp", "0", "-c", "4k", "-r", "x")
    assert "turbodflash_cli.run" in loaded
    assert set(loaded) & {*HEAVY, *HEAVY_FOR_TYPER} == set()


@pytest.mark.parametrize(
    ("line", "completions"),
    [
        ("turbodflash --te", ["--temp", "--temperature"]),
        ("turbodflash -ng", ["-ngld", "-ngl"]),
        ("turbodflash -m x --no-con", ["--no-conversation", "--no-context-shift"]),
        ("turbodflash -no-c", ["-no-cnv"]),
        ("turbodflash be", ["bench"]),
        ("turbodflash -ctk ", list(CACHE_TYPES)),
        ("turbodflash --reasoning ", ["on", "off", "auto"]),
        ("turbodflash --dflash-inject ", ["auto", "deferred", "immediate"]),
        ("turbodflash bench --warm", ["--warmup"]),
    ],
)
def test_a_shell_can_complete(line: str, completions: list[str]) -> None:
    asked = {"_TURBODFLASH_COMPLETE": "complete_bash", "COMP_WORDS": line}
    done = run("-m", "turbodflash_cli", COMP_CWORD=str(len(line.split(" ")) - 1), **asked)
    assert done.stdout.split() == completions
