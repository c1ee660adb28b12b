"""Free memory, and what a model needs of it, before anything is loaded."""

from __future__ import annotations

import os
from collections.abc import Callable
from operator import mul
from pathlib import Path
from typing import NamedTuple, Protocol

from turbodflash_engine.errors import DoesNotFit
from turbodflash_engine.info import Memory

STEP = 256  # contexts are whole multiples of it
GROUPS = Path("/sys/fs/cgroup")


class Sizes(Protocol):
    """What planning needs to know of a model's configuration."""

    @property
    def context(self) -> int: ...
    @property
    def vocabulary(self) -> int: ...
    @property
    def kv_values(self) -> tuple[int, int]: ...
    @property
    def scratch_values(self) -> int: ...


class Beside(NamedTuple):
    """What a draft takes beside its model. Bytes, in all and per position.

    positions: of its cache; 0 = as many as the model's.
    """

    weights: int = 0
    per_position: float = 0.0
    positions: int = 0


NOTHING_BESIDE = Beside()


class Plan(NamedTuple):
    """context: positions of the cache. notes: sentences that a person should read."""

    context: int
    memory: Memory
    notes: tuple[str, ...] = ()


def plan_memory(
    sizes: Sizes,
    *,
    weights: int,
    kv_bytes: tuple[float, float],
    context: int,
    rows: int,
    free: int | None,
    draft: Beside = NOTHING_BESIDE,
) -> Plan:
    """How much goes where. Raises DoesNotFit before anything is loaded.

    weights: bytes. kv_bytes: of one number of a key, and of a value.
    context: positions asked for, 0 = the trained length, cut to what fits.
    rows: of the largest pass. free: bytes, None = unknown. draft: must have room beside it all.
    """
    scratch = 4 * rows * sizes.scratch_values + 4 * sizes.vocabulary
    per_position = sum(map(mul, sizes.kv_values, kv_bytes))
    wanted = rounded(context or sizes.context)
    notes = _notes_on_training(context, sizes.context)
    if free is not None:
        fixed = weights + scratch + draft.weights + round(draft.positions * draft.per_position)
        together = per_position + (0 if draft.positions else draft.per_position)
        fits = _fitting(free, fixed, together, "and its draft need" if draft.weights else "needs")
        if wanted > fits and context:
            raise _context_too_large(context, wanted * together, fits * together, fits)
        if wanted > fits:
            notes += (f"the context is {fits:,} tokens, not {wanted:,}: more does not fit memory",)
        wanted = min(wanted, fits)
    return Plan(wanted, Memory(weights, round(wanted * per_position), scratch), notes)


def _notes_on_training(context: int, trained: int) -> tuple[str, ...]:
    if context <= trained:
        return ()
    return (
        f"a context of {context:,} tokens is beyond the {trained:,} that the model was trained on; "
        "quality may drop",
    )


def _fitting(free: int, fixed: int, per_position: float, needs: str) -> int:
    """The largest context that fits beside what has a fixed size."""
    fits = int((free - fixed) / per_position) // STEP * STEP
    if fits >= STEP:
        return fits
    raise DoesNotFit(
        f"the model {needs} {gib(fixed + STEP * per_position)} of memory; {gib(free)} are free",
        hint="use a smaller file of this model, or close other programs",
    )


def _context_too_large(context: int, needed: float, room: float, fits: int) -> DoesNotFit:
    return DoesNotFit(
        f"a context of {context:,} tokens needs {gib(needed)} for its keys and values; "
        f"there is room for {gib(room)}",
        hint=f"-c {fits} fits",
    )


def free_bytes() -> int | None:
    """Memory that this process may still take, or None where the system does not say."""
    found = [amount for amount in (_system_free(), _group_free()) if amount is not None]
    return min(found, default=None)


def gib(nbytes: float) -> str:
    return f"{nbytes / 2**30:.1f} GiB"


def rounded(context: int) -> int:
    """A context in whole steps."""
    return -(-context // STEP) * STEP


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
