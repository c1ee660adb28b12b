"""Extension by file: a family is a package, a member is a module in it, its name is the key."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from turbodflash_engine.errors import Unknown


@cache
def names(family: str) -> tuple[str, ...]:
    """What is on the shelf, sorted, read from file names alone: no member is imported."""
    package = import_module(f"turbodflash_engine.{family}")
    found = (m.name for m in iter_modules(package.__path__) if not m.name.startswith("_"))
    return tuple(sorted(found))


@cache
def find(family: str, name: str) -> Any:
    """The `PLUGIN` of one member.

    A name that is not on the shelf raises `Unknown`; a member that is there but does not import
    raises its own error.
    """
    known = names(family)
    if name not in known:
        raise Unknown(family.rstrip("s"), name, known)
    return import_module(f"turbodflash_engine.{family}.{name}").PLUGIN
