"""Sampling defaults that a model file brings along."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from turbodflash_engine.errors import BadUsage
from turbodflash_engine.options import SAMPLER_LETTERS, SampleOptions


class Metadata(Protocol):
    """What is read of a file's metadata."""

    def get(self, key: str, default: object) -> object: ...


PREFIX = "general.sampling."


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError
    return value


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError
    return float(value)


def _sequence(value: object) -> tuple[str, ...]:
    """Names joined by semicolons, or one letter a step."""
    if not isinstance(value, str) or not value:
        raise ValueError
    if set(value) <= set(SAMPLER_LETTERS):
        return tuple(SAMPLER_LETTERS[letter] for letter in value)
    return tuple(value.split(";"))


_FIELDS: Mapping[str, tuple[str, Callable[[object], Any]]] = {
    "sequence": ("samplers", _sequence),
    "top_k": ("top_k", _whole),
    "top_p": ("top_p", _number),
    "min_p": ("min_p", _number),
    "xtc_probability": ("xtc_probability", _number),
    "xtc_threshold": ("xtc_threshold", _number),
    "temp": ("temp", _number),
    "penalty_last_n": ("repeat_last_n", _whole),
    "penalty_repeat": ("repeat_penalty", _number),
    "mirostat": ("mirostat", _whole),
    "mirostat_tau": ("mirostat_ent", _number),
    "mirostat_eta": ("mirostat_lr", _number),
}


def sample_defaults(meta: Metadata) -> tuple[SampleOptions, tuple[str, ...]]:
    """The built-in defaults overridden by the file's own, and the keys that did so.

    A value that no option accepts is left alone: it is advice, not part of the model.
    """
    options = SampleOptions()
    used: list[str] = []
    for key, (name, read) in _FIELDS.items():
        value = meta.get(PREFIX + key, None)
        if value is None:
            continue
        try:
            change: dict[str, Any] = {name: read(value)}
            options = replace(options, **change)
        except (ValueError, BadUsage):
            continue
        used.append(PREFIX + key)
    return options, tuple(used)
