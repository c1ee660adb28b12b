"""How written values are read. Each reader takes (spelling, written value) and raises BadUsage."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from turbodflash_engine import SPEC_TYPES, BadUsage, Unknown

ON = ("on", "enabled", "true", "1", "yes")
OFF = ("off", "disabled", "false", "0", "no")
AUTO = ("auto", "-1")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "'": "'", '"': '"', "\\": "\\"}


def text(name: str, written: str) -> str:
    """The words as they are; bytes that the locale could not read are read as UTF-8."""
    try:
        return written.encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeError:
        raise BadUsage(f"the value of {name} is not UTF-8 text.") from None


def escaped(name: str, written: str) -> str:
    r"""Text in which `\n` and the like stand for the characters they mean."""
    return unescape(text(name, written))


def unescape(written: str) -> str:
    r"""`\n`, `\r`, `\t`, `\'`, `\"` and `\\` as the characters they mean."""
    return re.sub(r"\\([nrt'\"\\])", lambda found: _ESCAPES[found[1]], written)


def path(name: str, written: str) -> Path:
    """A path; `~` is the home folder."""
    if not written or "\0" in written:
        raise BadUsage(f"{name} takes a path, not {written!r}.")
    return Path(written).expanduser()


def whole(
    *, low: int | None = None, high: int | None = None, thousands: bool = False
) -> Callable[[str, str], int]:
    """Reads whole numbers from `low` to `high`; with `thousands`, `4k` is 4096."""

    def read(name: str, written: str) -> int:
        digits, factor = written.strip(), 1
        if thousands and digits[-1:] in ("k", "K"):
            digits, factor = digits[:-1], 1024
        try:
            number = int(digits) * factor if len(digits) < 20 else None
        except ValueError:
            number = None
        if number is None:
            raise BadUsage(f"{name} takes a whole number, not {written!r}.")
        if (low is not None and number < low) or (high is not None and number > high):
            raise BadUsage(f"{name} takes a whole number {_between(low, high)}, not {written}.")
        return number

    return read


def number(
    *, low: float | None = None, high: float | None = None, above: float | None = None
) -> Callable[[str, str], float]:
    """Reads finite numbers from `low` to `high`, or greater than `above`."""

    def read(name: str, written: str) -> float:
        try:
            value = float(written)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise BadUsage(f"{name} takes a number, not {written!r}.")
        if above is not None and value <= above:
            raise BadUsage(f"{name} takes a number above {above}, not {written}.")
        if (low is not None and value < low) or (high is not None and value > high):
            raise BadUsage(f"{name} takes a number {_between(low, high)}, not {written}.")
        return value

    return read


def temperature(name: str, written: str) -> float:
    """A finite number; below 0 it means 0."""
    return max(number()(name, written), 0.0)


def choice(*known: str) -> Callable[[str, str], str]:
    """Reads one of the known words, in any case."""

    def read(name: str, written: str) -> str:
        word = written.strip().lower()
        if word not in known:
            raise BadUsage(f"{name} takes {_words(known)}, not {written!r}.")
        return word

    return read


def spec_types(name: str, written: str) -> tuple[str, ...]:
    """Types of drafting, separated by commas; `none` is one of them."""
    known = ("none", *SPEC_TYPES)
    kinds = tuple(word.strip().lower() for word in written.split(",") if word.strip())
    if not kinds:
        raise BadUsage(f"{name} takes types of drafting, not {written!r}.", hint=", ".join(known))
    for kind in kinds:
        if kind not in known:
            raise Unknown("type of drafting", kind, known)
    return kinds


def rates(name: str, written: str) -> tuple[float, ...]:
    """Probabilities by commas, none larger than the one before it."""
    values = tuple(number(low=0, high=1)(name, each) for each in written.split(","))
    if any(after > before for before, after in itertools.pairwise(values)):
        raise BadUsage(
            f"{name} {written}: a rate is larger than the one before it.",
            hint="each is the share of steps that accept at least so many tokens",
        )
    return values


def on_off(name: str, written: str) -> bool:
    """on or off, in the spellings that environment variables use."""
    word = written.strip().lower()
    if word in ON or word in OFF:
        return word in ON
    raise BadUsage(f"{name} takes on or off, not {written!r}.")


def on_off_auto(name: str, written: str) -> str:
    """on, off or auto."""
    word = written.strip().lower()
    for meaning, spellings in (("on", ON), ("off", OFF), ("auto", AUTO)):
        if word in spellings:
            return meaning
    raise BadUsage(f"{name} takes on, off or auto, not {written!r}.")


def json_object(name: str, written: str) -> dict[str, Any]:
    """A JSON object, written out or as `@file`."""
    import json

    if written.startswith("@"):
        written = _contents(name, Path(written[1:]).expanduser())
    try:
        value = json.loads(written)
    except json.JSONDecodeError as error:
        raise BadUsage(
            f"{name} is not valid JSON (line {error.lineno}, column {error.colno}).",
            hint="quote it with single quotes, or put it into a file and pass @file.json",
        ) from error
    except RecursionError as error:
        raise BadUsage(f"{name} is nested too deeply.") from error
    if not isinstance(value, dict):
        raise BadUsage(f'{name} takes a JSON object such as {{"name": 1}}, not {written!r}.')
    return value


def _contents(name: str, file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise BadUsage(f"{name}: cannot read {str(file)!r}.", hint=str(error)) from error


def _between(low: float | None, high: float | None) -> str:
    if high is None:
        return f"of at least {low}"
    return f"up to {high}" if low is None else f"from {low} to {high}"


def _words(known: tuple[str, ...]) -> str:
    *rest, last = known
    return f"{', '.join(rest)} or {last}" if rest else last
