"""The models that have a name: what they are, and where they come from."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from turbodflash_engine import Unknown


@dataclass(frozen=True, slots=True)
class WheelSource:
    """A file inside a Python wheel that a package index serves.

    requirement pins one release; member is the file's path in the wheel; bytes is the wheel's size;
    size is that of the member, 0 = all of the model's.
    """

    requirement: str
    member: str
    bytes: int
    size: int = 0


@dataclass(frozen=True, slots=True)
class PartsSource:
    """A file in pieces, each in a wheel of its own, in order."""

    parts: tuple[WheelSource, ...]

    @property
    def bytes(self) -> int:
        """Of all wheels."""
        return sum(part.bytes for part in self.parts)


@dataclass(frozen=True, slots=True)
class HubSource:
    """A file of that name in one revision of a Hugging Face repository."""

    repo: str
    revision: str


Source: TypeAlias = "WheelSource | PartsSource | HubSource"


@dataclass(frozen=True, slots=True)
class Entry:
    """One model. bytes and sha256 are those of the finished file; sources are tried in order.

    terms: where the terms of a licence stand that are more than its name says.
    """

    name: str
    about: str
    file: str
    bytes: int
    sha256: str
    licence: str
    sources: tuple[Source, ...]
    terms: str = ""

    @property
    def notice(self) -> str:
        """A sentence that whoever fetches it should read; "" = there is none."""
        if not self.terms:
            return ""
        return f"note: {self.name} comes under the {self.licence} terms of use: {self.terms}"


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
        terms=model.get("terms", ""),
    )


def _source(source: dict[str, Any]) -> Source:
    if "parts" in source:
        return PartsSource(tuple(_wheel(part) for part in source["parts"]))
    if "pypi" in source:
        return _wheel(source)
    return HubSource(source["hf"], source["revision"])


def _wheel(source: dict[str, Any]) -> WheelSource:
    size = source.get("size", 0)
    return WheelSource(source["pypi"], source["member"], source["bytes"], size)
