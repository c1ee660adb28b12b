"""A model split over several files: `name-00001-of-00003.gguf` and its brothers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from turbodflash_engine.errors import BadModel

NUMBERED = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf\Z", re.DOTALL)
_ALL_PARTS = "put all parts of the model into one folder, under the names they were published with"


@dataclass(frozen=True, slots=True)
class Split:
    """What one part says about the whole: its own number, from 0, and how many there are."""

    number: int
    count: int
    tensors: int | None

    @classmethod
    def read(cls, values: dict[str, object], path: Path) -> Split:
        return cls(
            number=_whole(values, "split.no", 0, path),
            count=_whole(values, "split.count", 1, path),
            tensors=_whole(values, "split.tensors.count", 0, path)
            if "split.tensors.count" in values
            else None,
        )


def _whole(values: dict[str, object], key: str, default: int, path: Path) -> int:
    value = values.get(key, default)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise BadModel(
        f"'{path}': metadata key '{key}' is {value!r}, expected a whole number",
        hint="the file is damaged: download it again",
    )


def other_parts(path: Path, split: Split) -> list[Path]:
    """Where parts 2 to N lie, given the path of part 1 and what it says."""
    if split.number:
        raise BadModel(
            f"'{path}' is part {split.number + 1} of {split.count} of a split model",
            hint="open the first part, the one with -00001-of- in its name; it finds the others",
        )
    if split.count <= 1:
        return []
    named = NUMBERED.match(path.name)
    if named is None or (int(named["number"]), int(named["count"])) != (1, split.count):
        raise BadModel(
            f"'{path}' is part 1 of {split.count} of a split model, "
            f"but its name does not end in -00001-of-{split.count:05d}.gguf",
            hint=_ALL_PARTS,
        )
    paths = [
        path.with_name(f"{named['stem']}-{number:05d}-of-{split.count:05d}.gguf")
        for number in range(2, split.count + 1)
    ]
    _check_present(paths, split.count)
    return paths


def _check_present(paths: list[Path], count: int) -> None:
    missing = [(number, path) for number, path in enumerate(paths, 2) if not path.is_file()]
    if missing:
        number, path = missing[0]
        also = f" ({len(missing) - 1} more are missing too)" if len(missing) > 1 else ""
        raise BadModel(
            f"part {number} of {count} is missing: there is no '{path}'{also}", hint=_ALL_PARTS
        )


def check_part(path: Path, says: Split, number: int, first: Split) -> None:
    """Raises BadModel if the file at the place of part `number` (from 0) is another one."""
    if (says.number, says.count) != (number, first.count):
        raise BadModel(
            f"'{path}' says it is part {says.number + 1} of {says.count}, "
            f"expected part {number + 1} of {first.count}",
            hint=_ALL_PARTS,
        )


def check_total(path: Path, split: Split, tensors: int) -> None:
    """Raises BadModel if the parts together do not hold as many tensors as part 1 promised."""
    if split.tensors is not None and split.tensors != tensors:
        raise BadModel(
            f"'{path}' promises {split.tensors:,} tensors in {split.count} part(s), "
            f"but there are {tensors:,}",
            hint="the parts do not belong together: download the model again",
        )
