"""What there is to compute on, as the program tells it."""

from __future__ import annotations

import subprocess

import pytest

import turbodflash_engine
from tests.cli.fake import Program
from tests.cli.test_help import run
from tests.engine.tiny_models import path_of
from turbodflash_engine.devices import DeviceInfo

HERE = (
    DeviceInfo("cpu", "avx2, 8 threads", 12 << 30),
    DeviceInfo("gpu:0", "H200, compute capability 9.0", 138 << 30, 140 << 30),
    DeviceInfo("gpu:1", "GTX 1080, compute capability 6.1", None, 8 << 30, "it is too old"),
)


def test_devices_are_listed(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turbodflash_engine, "devices_here", lambda: HERE, raising=False)
    result = program("--list-devices")
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines() == [
        "cpu    avx2, 8 threads                   memory: 12.0 GiB free",
        "gpu:0  H200, compute capability 9.0      memory: 140.0 GiB, 138.0 GiB free",
        "gpu:1  GTX 1080, compute capability 6.1  memory: 8.0 GiB; cannot be used: it is too old",
    ]


def python(script: str) -> subprocess.CompletedProcess[str]:
    listing = "import sys; print(*sys.modules, file=sys.stderr)"
    return run("-c", f"{script}\n{listing}", TRITON_INTERPRET="0")


def test_this_machines_devices_are_found_without_torch_where_it_has_no_card() -> None:
    done = python("from turbodflash_cli.app import main; main(['--list-devices'])")
    names = [line.split()[0] for line in done.stdout.splitlines()]
    assert (names[0], names[-1]) == ("cpu", "reference")
    if len(names) == 2:
        assert not {"torch", "triton"} & set(done.stderr.split())


@pytest.mark.parametrize("asked", ["device='cpu'", "gpu_layers=0", "device='cpu', gpu_layers=0"])
def test_the_cpu_path_never_loads_torch(asked: str) -> None:
    options = f"LoadOptions(Path({str(path_of('llama'))!r}), context=256, {asked})"
    script = "from pathlib import Path\nfrom turbodflash_engine import LoadOptions, open_session\n"
    done = python(f"{script}print(open_session({options}).info.device)")
    assert done.stdout.startswith("cpu ")
    assert not {"torch", "triton"} & set(done.stderr.split())


def test_a_card_that_is_not_there_is_one_sentence() -> None:
    words = ("-m", str(path_of("llama")), "-p", "hi", "-ngl", "99")
    script = f"import sys; from turbodflash_cli.app import main; print(main({list(words)!r}))"
    done = run("-c", script, TRITON_INTERPRET="0", CUDA_VISIBLE_DEVICES="")
    assert done.stdout == "1\n"
    assert done.stderr == (
        "error: there is no NVIDIA card here that its driver knows of.\n"
        "hint: leave out -ngl and -dev, or use -ngl 0, to compute on the CPU\n"
    )


INTERPRETED = "from tests.interpreter import improve; improve()"


def test_an_answer_from_a_card_is_that_of_the_cpu() -> None:
    """The head alone is there, because it is interpreted."""
    words = ("-m", str(path_of("qwen3")), "-no-cnv", "-p", "a", "-n", "4", "--temp", "0")
    small = ("-c", "256", "--no-warmup", "--no-show-timings")
    script = "import sys; from turbodflash_cli.app import main; main(sys.argv[1:])"

    def answer(script: str, *where: str) -> tuple[str, str]:
        done = run("-c", script, *words, *small, *where, TRITON_INTERPRET="1")
        return done.stdout, done.stderr

    on_the_card = answer(f"{INTERPRETED}\n{script}", "-dev", "gpu", "-ngl", "1")
    assert on_the_card == answer(script, "-ngl", "0")
    assert on_the_card[1] == ""
