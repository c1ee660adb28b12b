"""Where a model comes from, that only whole and right files stay, and what is said otherwise."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.hub_server import serve_hub
from turbodflash_cli import wheel
from turbodflash_cli.catalogue import Catalogue, Entry, HubSource, PartsSource, WheelSource
from turbodflash_cli.fetch import FetchFailed, fetch, resolve
from turbodflash_cli.store import SourceFailed, Store, StoreFailed, cache_folder
from turbodflash_engine import BadUsage, Unknown

CONTENT = bytes(range(256)) * 9999
WHEEL = WheelSource("tiny-model==1.0", "tiny_model/tiny.gguf", bytes=20_000)
TINY = Entry(
    name="tiny",
    about="for tests",
    file="tiny.gguf",
    bytes=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    licence="Apache-2.0",
    sources=(WHEEL,),
)


def quiet(stage: str, done: int, total: int) -> None:
    pass


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("TURBODFLASH_CACHE", str(tmp_path / "cache"))
    return Store()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes for the whole world."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def put_wheel(
    index: Path, content: bytes = CONTENT, member: str = WHEEL.member, name: str = "tiny_model"
) -> Path:
    path = index / f"{name}-1.0-py3-none-any.whl"
    about = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, content)
        archive.writestr(
            f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
        )
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    return path


@pytest.fixture
def folder_of_wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As `index`, without the second that each start of pip takes: wheels are copied from there."""
    folder = tmp_path / "wheels"
    folder.mkdir()

    def copy(source: WheelSource, work: Path, report: Callable[[str, int, int], None]) -> Path:
        name = source.requirement.replace("-", "_").replace("==", "-")
        for file in folder.glob(f"{name}-*"):
            return Path(shutil.copy(file, work))
        raise SourceFailed(f"pip could not download {source.requirement} (it is not there)")

    monkeypatch.setattr(wheel, "download_wheel", copy)
    return folder


@contextmanager
def downloads_counted(monkeypatch: pytest.MonkeyPatch, file: Path) -> Iterator[list[str]]:
    """Replaces pip by a copy of `file`; yields what was asked for."""
    asked: list[str] = []

    def copy(source: WheelSource, work: Path, report: Callable[[str, int, int], None]) -> Path:
        asked.append(source.requirement)
        report("downloading", 1, source.bytes)
        return Path(shutil.copy(file, work))

    monkeypatch.setattr(wheel, "download_wheel", copy)
    yield asked


def visible(store: Store) -> list[str]:
    """The kept files; hidden ones are locks."""
    if not store.folder.exists():
        return []
    hidden = {path.name for path in store.folder.glob(".*")}
    assert hidden <= {f".{TINY.file}.lock"}
    return sorted({path.name for path in store.folder.iterdir()} - hidden)


def test_a_model_comes_out_of_a_wheel_that_pip_downloads(store, index):
    put_wheel(index)
    seen = []
    path = fetch(TINY, store, report=lambda *step: seen.append(step))
    assert path.read_bytes() == CONTENT
    assert visible(store) == ["tiny.gguf", "tiny.gguf.sha256"]
    assert (store.folder / "tiny.gguf.sha256").read_text() == f"{TINY.sha256}  tiny.gguf\n"
    assert {stage for stage, _, _ in seen} == {"downloading", "unpacking"}
    assert seen[-1] == ("unpacking", TINY.bytes, TINY.bytes)
    assert all(0 <= done <= total for _, done, total in seen)


def test_what_is_kept_is_not_fetched_again(store, tmp_path, monkeypatch):
    with downloads_counted(monkeypatch, put_wheel(tmp_path)) as asked:
        first = fetch(TINY, store, report=quiet)
        assert fetch(TINY, store, report=quiet, offline=True) == first
        assert fetch(TINY, store, report=quiet, verify=True) == first
    assert asked == ["tiny-model==1.0"]


@pytest.mark.parametrize("damage", [CONTENT[:-1], CONTENT + b"x"])
def test_a_kept_file_of_another_size_is_fetched_again(store, tmp_path, monkeypatch, damage):
    with downloads_counted(monkeypatch, put_wheel(tmp_path)) as asked:
        fetch(TINY, store, report=quiet).write_bytes(damage)
        assert fetch(TINY, store, report=quiet).read_bytes() == CONTENT
    assert len(asked) == 2


def test_verifying_finds_a_changed_byte(store, tmp_path, monkeypatch):
    with downloads_counted(monkeypatch, put_wheel(tmp_path)) as asked:
        path = fetch(TINY, store, report=quiet)
        path.write_bytes(CONTENT[:-1] + b"!")
        assert fetch(TINY, store, report=quiet, verify=True).read_bytes() == CONTENT
    assert len(asked) == 2


def test_a_right_file_put_there_by_hand_is_adopted(store):
    store.folder.mkdir(parents=True)
    store.path(TINY).write_bytes(CONTENT)
    assert not store.has(TINY)
    assert fetch(TINY, store, report=quiet, offline=True) == store.path(TINY)
    assert store.has(TINY)


def test_a_wrong_file_put_there_by_hand_is_not(store):
    store.folder.mkdir(parents=True)
    store.path(TINY).write_bytes(bytes(TINY.bytes))
    with pytest.raises(FetchFailed, match="not on this machine"):
        fetch(TINY, store, report=quiet, offline=True)


def damage_data(path: Path) -> None:
    """Flips bits of compressed data, past the first local header."""
    raw = bytearray(path.read_bytes())
    raw[200] ^= 0xFF
    path.write_bytes(raw)


@pytest.mark.parametrize(
    ("content", "member", "harm", "reason"),
    [
        (CONTENT[:-1] + b"!", WHEEL.member, None, "what came is not tiny.gguf"),
        (CONTENT + b"more", WHEEL.member, None, "has 2,559,748 bytes, not 2,559,744"),
        (b"", WHEEL.member, None, "has 0 bytes"),
        (CONTENT, "../../tiny.gguf", None, "holds no tiny_model/tiny.gguf"),
        (CONTENT, WHEEL.member, damage_data, "came damaged"),
        (CONTENT, WHEEL.member, lambda path: path.write_bytes(b"no zip"), "came damaged"),
    ],
)
def test_a_wheel_with_the_wrong_content_leaves_nothing(
    store, tmp_path, monkeypatch, content, member, harm, reason
):
    path = put_wheel(tmp_path, content, member)
    if harm:
        harm(path)
    with downloads_counted(monkeypatch, path), pytest.raises(FetchFailed, match=reason) as refusal:
        fetch(TINY, store, report=quiet)
    assert "-m FILE.gguf" in refusal.value.hint
    assert visible(store) == []


def test_the_next_source_is_tried(store, index, monkeypatch):
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    both = replace(TINY, sources=(WHEEL, HubSource("user/tiny", "c" * 40)))
    with serve_hub(**{"user/tiny": {"tiny.gguf": CONTENT}}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        assert fetch(both, store, report=quiet).read_bytes() == CONTENT
        hub.repos["user/tiny"]["tiny.gguf"] = CONTENT[::-1]
        store.remove(both)
        with pytest.raises(FetchFailed, match=r"pip could not .*; what came is not tiny\.gguf"):
            fetch(both, store, report=quiet)
    assert visible(store) == []


CUTS = (0, 1_000_000, 1_000_001, len(CONTENT))
PARTS = tuple(
    WheelSource(f"tiny-part{at}==1.0", f"tiny_part{at}/tiny.{at}", 20_000, CUTS[at + 1] - CUTS[at])
    for at in range(3)
)
IN_PARTS = replace(TINY, sources=(PartsSource(PARTS),), terms="https://example.org/terms")


def put_parts(index: Path) -> None:
    for at, part in enumerate(PARTS):
        put_wheel(index, CONTENT[CUTS[at] : CUTS[at + 1]], part.member, f"tiny_part{at}")


def test_a_model_in_parts_is_joined(store, index):
    put_parts(index)
    seen, notes = [], []
    path = fetch(IN_PARTS, store, report=lambda *event: seen.append(event), note=notes.append)
    assert path.read_bytes() == CONTENT
    assert visible(store) == ["tiny.gguf", "tiny.gguf.sha256"]
    downloading = [event[1:] for event in seen if event[0] == "downloading"]
    assert {total for _, total in downloading} == {60_000}
    assert {done // 20_000 for done, _ in downloading} >= {0, 1, 2}
    assert notes == [
        "note: tiny comes under the Apache-2.0 terms of use: https://example.org/terms"
    ]
    fetch(IN_PARTS, store, report=quiet, note=notes.append)
    assert len(notes) == 1  # what is here is not fetched


@pytest.mark.parametrize("lost", range(3))
def test_a_part_that_is_missing_is_named_and_leaves_nothing(store, folder_of_wheels, lost):
    put_parts(folder_of_wheels)
    next(folder_of_wheels.glob(f"tiny_part{lost}*")).unlink()
    with pytest.raises(FetchFailed, match=f"tiny-part{lost}==1.0"):
        fetch(IN_PARTS, store, report=quiet)
    assert visible(store) == []


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(b"", "has 0 bytes, not 1"), (b"?", "what came is not tiny.gguf")],
)
def test_a_wrong_part_leaves_nothing(store, folder_of_wheels, content, sentence):
    put_parts(folder_of_wheels)
    put_wheel(folder_of_wheels, content, PARTS[1].member, "tiny_part1")
    with pytest.raises(FetchFailed, match=sentence):
        fetch(IN_PARTS, store, report=quiet)
    assert visible(store) == []


def test_no_network_is_one_sentence_with_a_way_out(store, index):
    with pytest.raises(FetchFailed) as refusal:
        fetch(TINY, store, report=quiet)
    assert str(refusal.value).startswith("the model tiny is not on this machine and could not be")
    assert "pip could not download tiny-model==1.0 (" in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert "network" in refusal.value.hint
    assert visible(store) == []


def test_offline_never_fetches(store, monkeypatch, tmp_path):
    with downloads_counted(monkeypatch, tmp_path) as asked, pytest.raises(FetchFailed) as refusal:
        fetch(TINY, store, report=quiet, offline=True)
    assert "--offline forbids" in str(refusal.value)
    assert "turbodflash models pull tiny" in refusal.value.hint
    assert asked == []


def test_a_python_without_pip_says_how_to_get_it(store, monkeypatch):
    monkeypatch.setattr(wheel, "find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(FetchFailed, match=r"has no pip; `python -m ensurepip` installs it"):
        fetch(TINY, store, report=quiet)


def test_a_pip_on_the_path_serves_as_well(monkeypatch):
    monkeypatch.setattr(wheel, "find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    assert wheel._pip() == ["/bin/pip3"]


def test_a_full_disk_is_noticed_before_anything_is_fetched(store, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)._replace(free=TINY.bytes)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    with downloads_counted(monkeypatch, tmp_path) as asked, pytest.raises(StoreFailed) as refusal:
        fetch(TINY, store, report=quiet)
    assert "no room for tiny" in str(refusal.value)
    assert "TURBODFLASH_CACHE" in refusal.value.hint
    assert asked == []


@pytest.mark.parametrize(
    ("number", "sentence"), [(errno.ENOSPC, "no room for tiny"), (errno.EIO, "cannot write to")]
)
def test_a_disk_that_fails_while_writing_leaves_nothing(
    store, tmp_path, monkeypatch, number, sentence
):
    def fail(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    with (
        downloads_counted(monkeypatch, put_wheel(tmp_path)),
        pytest.raises(StoreFailed, match=sentence),
    ):
        fetch(TINY, store, report=quiet)
    assert visible(store) == []


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreFailed, match="cannot write to the model folder") as refusal:
        fetch(TINY, Store(tmp_path / "file" / "models"), report=quiet)
    assert "TURBODFLASH_CACHE" in refusal.value.hint


def interrupt_at(at: str) -> Callable[[str, int, int], None]:
    def interrupt(stage: str, done: int, total: int) -> None:
        if stage == at:
            raise KeyboardInterrupt

    return interrupt


def test_an_interrupted_download_leaves_nothing(store, index):
    put_wheel(index)
    with pytest.raises(KeyboardInterrupt):
        fetch(TINY, store, report=interrupt_at("downloading"))
    assert visible(store) == []


def test_an_interrupted_unpacking_leaves_nothing(store, tmp_path, monkeypatch):
    with downloads_counted(monkeypatch, put_wheel(tmp_path)):
        with pytest.raises(KeyboardInterrupt):
            fetch(TINY, store, report=interrupt_at("unpacking"))
        assert visible(store) == []
        assert fetch(TINY, store, report=quiet).read_bytes() == CONTENT


def test_what_a_killed_process_left_is_swept_away(store, tmp_path, monkeypatch):
    leftover = store.folder / f".{TINY.file}.fetching"
    leftover.mkdir(parents=True)
    (leftover / "half.whl").write_bytes(b"half")
    with downloads_counted(monkeypatch, put_wheel(tmp_path)):
        fetch(TINY, store, report=quiet)
    assert visible(store) == ["tiny.gguf", "tiny.gguf.sha256"]


def test_of_several_at_once_one_fetches_and_the_others_wait(store, tmp_path, monkeypatch):
    with (
        downloads_counted(monkeypatch, put_wheel(tmp_path)) as asked,
        ThreadPoolExecutor(4) as pool,
    ):
        paths = list(pool.map(lambda _: fetch(TINY, Store(), report=quiet), range(4)))
    assert {path.read_bytes() for path in paths} == {CONTENT}
    assert asked == ["tiny-model==1.0"]


def test_without_a_model_the_default_one_is_taken(store, tmp_path, monkeypatch):
    monkeypatch.setattr(Catalogue, "shipped", staticmethod(lambda: Catalogue((TINY,), TINY)))
    with downloads_counted(monkeypatch, put_wheel(tmp_path)) as asked:
        assert resolve(None, None, None, offline=False) == store.path(TINY)
        assert resolve(Path("Tiny"), None, None, offline=False) == store.path(TINY)
    assert len(asked) == 1


def test_a_file_that_exists_is_taken_as_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("smollm2-135m-instruct").write_bytes(b"")
    assert resolve(Path("smollm2-135m-instruct"), None, None, False) == Path(
        "smollm2-135m-instruct"
    )


@pytest.mark.parametrize(
    ("model", "repo", "file", "sentence", "hint"),
    [
        ("qwen.ggu", None, None, "model file not found: qwen.ggu", "'qwen.gguf'"),
        ("none/x.gguf", None, None, "model file not found: none", "-m"),
        (".", None, None, "'.' is a folder", "qwen.gguf"),
        ("qwen.gguf", "user/repo", None, "-m and -hf both", "one of the two"),
        (None, None, "x.gguf", "'x.gguf' of no repository", "-hf user/repo"),
    ],
)
def test_a_model_that_cannot_be_named_so(tmp_path, monkeypatch, model, repo, file, sentence, hint):
    monkeypatch.chdir(tmp_path)
    Path("qwen.gguf").write_bytes(b"")
    with pytest.raises(BadUsage, match=sentence) as refusal:
        resolve(model and Path(model), repo, file, offline=True)
    assert hint in refusal.value.hint


@pytest.mark.parametrize(
    ("platform", "environment", "expected"),
    [
        ("linux", {}, "HOME/.cache/turbodflash"),
        ("linux", {"XDG_CACHE_HOME": "X"}, "X/turbodflash"),
        ("darwin", {}, "HOME/Library/Caches/turbodflash"),
        ("win32", {"LOCALAPPDATA": "L"}, "L/turbodflash"),
        ("linux", {"TURBODFLASH_CACHE": "T"}, "T"),
    ],
)
def test_the_cache_folder_is_where_the_system_keeps_caches(
    monkeypatch, platform, environment, expected
):
    for name in ("TURBODFLASH_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(Path, "home", lambda: Path("HOME"))
    monkeypatch.setattr("sys.platform", platform)
    assert cache_folder() == Path(expected)


def test_the_shipped_catalogue_is_in_order():
    catalogue = Catalogue.shipped()
    assert len(set(catalogue.names())) == len(catalogue.entries)
    assert catalogue.default.name == "smollm2-135m-instruct"
    for entry in catalogue.entries:
        assert entry.name == entry.name.lower()
        assert entry.bytes > 0
        assert len(bytes.fromhex(entry.sha256)) == 32
        assert entry.licence
        assert Path(entry.file).name == entry.file
        assert entry.terms.startswith("https://") or not entry.terms
        for source in entry.sources:
            if isinstance(source, HubSource):
                assert source.revision
                continue
            wheels = source.parts if isinstance(source, PartsSource) else (source,)
            assert all("==" in wheel.requirement for wheel in wheels)
            assert sum(wheel.size for wheel in wheels) == (len(wheels) > 1 and entry.bytes)
    with pytest.raises(Unknown) as refusal:
        catalogue.find("smollm2-135m")
    assert "did you mean 'smollm2-135m-instruct'" in refusal.value.hint
