"""How much memory there is to take."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")


def free_bytes() -> int | None:
    """Memory that this process may still take, or None where the system does not say."""
    found = [amount for amount in (_system_free(), _group_free()) if amount is not None]
    return min(found, default=None)


def _system_free() -> int | None:
    fields = _fields(Path("/proc/meminfo"), lambda name: name == "MemAvailable:")
    if fields:
        return 1024 * fields[0]
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _group_free() -> int | None:
    """What the control group's limit leaves; pages of files can be dropped and do not count."""
    limit, used = _number(GROUPS / "memory.max"), _number(GROUPS / "memory.current")
    if limit is None or used is None:
        return None
    droppable = _fields(GROUPS / "memory.stat", lambda name: name == "inactive_file")
    return max(limit - used + sum(droppable), 0)


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _fields(path: Path, wanted: Callable[[str], bool]) -> list[int]:
    """The numbers after the names that are wanted, of lines "name number …"."""
    try:
        lines = [line.split() for line in path.read_text().splitlines()]
        return [int(line[1]) for line in lines if line and wanted(line[0])]
    except (OSError, ValueError, IndexError):
        return []
