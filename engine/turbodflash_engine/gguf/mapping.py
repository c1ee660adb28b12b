"""A path becomes bytes, or a sentence that says why not."""

from __future__ import annotations

import mmap
import stat
from pathlib import Path

from turbodflash_engine.errors import BadModel, BadUsage


def map_file(path: Path) -> mmap.mmap:
    """The whole file, mapped read-only. Raises BadUsage or, for an empty file, BadModel."""
    try:
        status = path.stat()
        _check_kind(path, status.st_mode)
        if status.st_size == 0:
            raise BadModel(f"'{path}' is empty (0 bytes)", hint="download it again")
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise BadUsage(f"model file not found: {path}", hint=_models_in(path.parent)) from None
    except PermissionError:
        raise BadUsage(
            f"cannot read '{path}': permission denied", hint="check who may read this file"
        ) from None
    except (OSError, ValueError) as error:
        raise BadUsage(
            f"cannot read '{path}': {error}", hint="check the path and the disk it is on"
        ) from None


def _check_kind(path: Path, mode: int) -> None:
    if stat.S_ISDIR(mode):
        hint = _models_in(path) or "name a file, not a folder"
        raise BadUsage(f"'{path}' is a folder, not a GGUF file", hint)
    if not stat.S_ISREG(mode):
        raise BadUsage(
            f"'{path}' is not a regular file", hint="a model must be on disk: save it to a file"
        )


def _models_in(folder: Path, most: int = 5) -> str:
    """A hint that names the GGUF files of a folder; empty if there are none."""
    try:
        names = sorted(entry.name for entry in folder.glob("*.gguf"))
    except OSError:
        return ""
    if not names:
        return ""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"in '{folder}' there are: {', '.join(names[:most])}{more}"
