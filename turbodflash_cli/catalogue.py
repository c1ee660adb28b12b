"""The models that have a name: what they are, and where they come from."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from turbodflash_engine import Unknown


@dataclass(frozen=True, slots=True)
class WheelSource:
    """A file inside a Python wheel that a package index serves.

    requirement pins one release; member is the file's path in the wheel; bytes is the wheel's size.
    """

    requirement: str
    member: str
    bytes: int


@dataclass(frozen=True, slots=True)
class HubSource:
    """A file of that name in one revision of a Hugging Face repository."""

    repo: str
    revision: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One model. bytes and sha256 are those of the finished file; sources are tried in order."""

    name: str
    about: str
    file: str
    bytes: int
    sha256: str
    licence: str
    sources: tuple[WheelSource | HubSource, ...]


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All models with a name, and the one that runs when none is asked for."""

    entries: tuple[Entry, ...]
    default: Entry

    @staticmethod
    @cache
    def shipped() -> Catalogue:
        """The catalogue that comes with the program."""
        return Catalogue.parse(Path(__file__).with_name("catalogue.json").read_text("utf-8"))

    @staticmethod
    def parse(text: str) -> Catalogue:
        """Reads the JSON form; exactly one model must be the default."""
        models = json.loads(text)["models"]
        entries = tuple(_entry(model) for model in models)
        (default,) = (
            entry for entry, model in zip(entries, models, strict=True) if model.get("default")
        )
        return Catalogue(entries, default)

    def names(self) -> tuple[str, ...]:
        """The names, in the file's order."""
        return tuple(entry.name for entry in self.entries)

    def find(self, name: str) -> Entry:
        """The model of that name, whatever its case; Unknown if there is none."""
        for entry in self.entries:
            if entry.name == name.lower():
                return entry
        raise Unknown("model", name, self.names())


def _entry(model: dict[str, Any]) -> Entry:
    return Entry(
        name=model["name"],
        about=model["about"],
        file=model["file"],
        bytes=model["bytes"],
        sha256=model["sha256"],
        licence=model["licence"],
        sources=tuple(_source(source) for source in model["sources"]),
    )


def _source(source: dict[str, Any]) -> WheelSource | HubSource:
    if "pypi" in source:
        return WheelSource(source["pypi"], source["member"], source["bytes"])
    return HubSource(source["hf"], source["revision"])
