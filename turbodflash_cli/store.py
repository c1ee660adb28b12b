"""The folder that keeps fetched models: whole files only, each with its recorded sha256.

A kept file has its final name only after its size and hash were right. Beside it lies NAME.sha256
in the form that `sha256sum --check` reads.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Protocol

from turbodflash_cli.catalogue import Entry
from turbodflash_engine import TurbodflashError

Report = Callable[[str, int, int], None]
"""(stage, bytes done, bytes in all): called often while something long goes on."""

CHUNK = 1 << 20


class Content(Protocol):
    """What a file is written from: at most so many of the bytes that follow; none at the end."""

    def read(self, size: int, /) -> bytes: ...


class StoreFailed(TurbodflashError):
    """The model folder cannot keep a file: no room, or no permission."""


class SourceFailed(TurbodflashError):
    """A source could not give what it was asked for: no network, no permission, no such thing."""


class WrongContent(TurbodflashError):
    """What came is not the file that the catalogue promises."""


def cache_folder() -> Path:
    """$TURBODFLASH_CACHE, or `turbodflash` in the place this system has for caches."""
    if chosen := os.environ.get("TURBODFLASH_CACHE"):
        return Path(chosen).expanduser()
    home = Path.home()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = home / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or home / ".cache"
    return Path(base) / "turbodflash"


class Store:
    """The kept models in one folder, which is made when the first one comes."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or cache_folder() / "models"

    def path(self, entry: Entry) -> Path:
        """Where the entry's file is, or would be."""
        return self.folder / entry.file

    def has(self, entry: Entry) -> bool:
        """Whether the file is here and was once found right; reads no more than its size."""
        try:
            recorded = self._record(entry).read_text("utf-8").split()
            return recorded[:1] == [entry.sha256] and self._size(entry) == entry.bytes
        except OSError:
            return False

    def adopt(self, entry: Entry, report: Report) -> bool:
        """Reads the whole file, if there is one, and records it when its hash is right."""
        if self._size(entry) != entry.bytes:
            return False
        digest = hashlib.sha256()
        with self.path(entry).open("rb") as file:
            for done in _chunks(file, entry.bytes, digest.update):
                report("checking", done, entry.bytes)
        if digest.hexdigest() != entry.sha256:
            self._record(entry).unlink(missing_ok=True)
            return False
        with suppress(OSError):  # a read-only folder: then the file is hashed each time
            self._write_record(entry)
        return True

    def keep(self, entry: Entry, content: Content, report: Report) -> Path:
        """Writes the file from `content` and gives it its name if size and hash are right."""
        part = self.path(entry).with_name(f".{entry.file}.part")
        try:
            self._write(entry, content, part, report)
            os.replace(part, self.path(entry))
            self._write_record(entry)
        except OSError as error:
            raise self._trouble(error, entry) from error
        finally:
            part.unlink(missing_ok=True)
        return self.path(entry)

    def remove(self, entry: Entry) -> int:
        """Forgets the file; how many bytes that freed (0: it was not here)."""
        freed = self._size(entry)
        self._record(entry).unlink(missing_ok=True)
        self.path(entry).unlink(missing_ok=True)
        return freed

    @contextmanager
    def workspace(self, entry: Entry, report: Report) -> Iterator[Path]:
        """An empty folder beside the kept files, for one process at a time; gone afterwards."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = (self.folder / f".{entry.file}.lock").open("ab")
        except OSError as error:
            raise self._trouble(error, entry) from error
        with lock:
            while not _try_lock(lock):
                report("waiting for another turbodflash that fetches the same model", 0, 0)
                time.sleep(0.2)
            work = self.folder / f".{entry.file}.fetching"
            shutil.rmtree(work, ignore_errors=True)  # a killed process may have left one
            work.mkdir()
            try:
                yield work
            finally:
                shutil.rmtree(work, ignore_errors=True)

    def require_room(self, entry: Entry, needed: int) -> None:
        """StoreFailed if the folder's disk has fewer free bytes than `needed`."""
        if shutil.disk_usage(self.folder).free < needed:
            raise self._no_room(entry, needed)

    def _trouble(self, error: OSError, entry: Entry) -> StoreFailed:
        """The sentence for what the system said about the folder."""
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return self._no_room(entry, entry.bytes)
        return StoreFailed(
            f"cannot write to the model folder {self.folder}: {error.strerror or error}.",
            hint="set TURBODFLASH_CACHE to a folder that you may write to.",
        )

    def _no_room(self, entry: Entry, needed: int) -> StoreFailed:
        return StoreFailed(
            f"no room for {entry.name} in {self.folder}: fetching it takes {needed / 1e6:,.0f} MB.",
            hint="free some space, or set TURBODFLASH_CACHE to a folder on another disk.",
        )

    def _write(self, entry: Entry, content: Content, part: Path, report: Report) -> None:
        digest, done = hashlib.sha256(), 0
        with part.open("wb") as file:

            def take(chunk: bytes) -> None:
                digest.update(chunk)
                file.write(chunk)

            for done in _chunks(content, entry.bytes, take):
                report("unpacking", done, entry.bytes)
            file.flush()
            os.fsync(file.fileno())
        if done != entry.bytes or content.read(1) or digest.hexdigest() != entry.sha256:
            raise WrongContent(
                f"what came is not {entry.file}: {done:,} bytes with sha256"
                f" {digest.hexdigest()[:16]}… instead of {entry.bytes:,} with {entry.sha256[:16]}…",
                hint="try again; if that does not help, pass a file of your own with -m.",
            )

    def _record(self, entry: Entry) -> Path:
        return self.folder / f"{entry.file}.sha256"

    def _write_record(self, entry: Entry) -> None:
        self._record(entry).write_text(f"{entry.sha256}  {entry.file}\n", "utf-8")

    def _size(self, entry: Entry) -> int:
        try:
            return self.path(entry).stat().st_size
        except OSError:
            return 0


def _chunks(source: Content, limit: int, take: Callable[[bytes], object]) -> Iterator[int]:
    """Hands at most `limit` bytes of `source` to `take`; yields the running total."""
    done = 0
    while done < limit and (chunk := source.read(min(CHUNK, limit - done))):
        take(chunk)
        done += len(chunk)
        yield done


if sys.platform == "win32":
    import msvcrt

    def _try_lock(file: IO[bytes]) -> bool:
        """Takes the lock that the system gives back when this process ends; False: taken."""
        try:
            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
else:
    import fcntl

    def _try_lock(file: IO[bytes]) -> bool:
        """Takes the lock that the system gives back when this process ends; False: taken."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
