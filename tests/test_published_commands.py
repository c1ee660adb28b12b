"""Command lines as they were published for the system that this one takes the place of.

They run as typed, on tiny models of the same architectures. A plain device stands in for the card
that they name.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.cli.fake import Stream
from tests.golden_files import golden_models, unpacked
from turbodflash_cli.app import main
from turbodflash_engine import devices, plugins

PROMPT = '-p "Write a quicksort algorithm in Python. Write code only."'
SAMPLING = "--temp 0 --top-k 1 --seed 42"
FEW = "-n 8"
"""The only words that were not published: a tiny model of random weights would never end."""

HYBRID = [
    (1024, "q8_0", "q8_0"),
    (32768, "q8_0", "q8_0"),
    (65536, "q8_0", "q8_0"),
    (65536, "q8_0", "turbo4"),
    (65536, "turbo4", "turbo4"),
    (65536, "turbo4", "q8_0"),
]
PUBLISHED = {  # tiny target: its draft, and the contexts and cache types of its runs
    "qwen35moe": ("dflash--qwen35moe", HYBRID),
    "qwen35": ("dflash--qwen35", [(64000, "q8_0", "q8_0")]),
    "gemma4": ("dflash--gemma4", [(64000, "q8_0", "q8_0"), (1024, "q8_0", "q8_0")]),
    "gemma4moe": ("dflash--gemma4", [(64000, "q8_0", "q8_0")]),
    "qwen3": ("dflash--qwen3", [*HYBRID, (1024, "q8_0", "iq4_nl")]),
}
FILES = {path.name.removeprefix("tiny-").removesuffix(".gguf.xz") for path in golden_models()}


def architecture(target: str) -> str:
    return "gemma4" if target == "gemma4moe" else target


RUNS = [
    (target, draft, *run)
    for target, (draft, runs) in PUBLISHED.items()
    if architecture(target) in plugins.names("models") and {target, draft} <= FILES
    for run in runs
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("published")


class Shell:
    """Runs command lines in a folder where `target.gguf` and `draft.gguf` are what is asked for."""

    def __init__(
        self, folder: Path, capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch
    ) -> None:
        self._folder, self._capsys, self._patch = folder, capsys, patch

    def enter(self, target: str, draft: str) -> None:
        place = self._folder / target
        place.mkdir(exist_ok=True)
        for name, model in (("target", target), ("draft", draft)):
            link = place / f"{name}.gguf"
            if not link.exists():
                packed = next(p for p in golden_models() if p.name == f"tiny-{model}.gguf.xz")
                link.symlink_to(unpacked(packed, self._folder))
        self._patch.chdir(place)

    def __call__(self, line: str) -> tuple[str, str]:
        code = main(shlex.split(line)[1:])
        told = self._capsys.readouterr()
        assert code == 0, told.err
        return told.out, told.err


@pytest.fixture
def shell(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Shell:
    monkeypatch.setenv("LLAMA_SPEC_NO_THINK", "1")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr("sys.stdin", Stream(tty=True))
    monkeypatch.setattr(devices, "_best_card", lambda: "reference")
    return Shell(folder, capsys, monkeypatch)


@pytest.mark.parametrize(("target", "draft", "context", "k", "v"), RUNS)
def test_a_published_run_and_its_baseline(
    shell: Shell, target: str, draft: str, context: int, k: str, v: str
) -> None:
    shell.enter(target, draft)
    common = f"{PROMPT} -c {context} -ngl 99 --cache-type-k {k} --cache-type-v {v} {SAMPLING}"
    end = f"--reasoning off {FEW}"
    drafting = "-md draft.gguf --dflash -ngld 99 --spec-draft-n-max 16"
    plain, alone = shell(f"turbodflash -m target.gguf {common} {end}")
    drafted, told = shell(f"turbodflash -m target.gguf {drafting} {common} {end}")
    assert drafted == plain
    assert "[ Prompt: " in alone
    assert "[ Draft: " not in alone
    assert told.splitlines()[-1].startswith("[ Draft: ")
