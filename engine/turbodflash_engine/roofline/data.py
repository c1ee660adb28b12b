"""The files of figures beside this one."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any


def read(name: str) -> Any:
    """One of them, by its name without the ending."""
    return json.loads((files(__package__) / f"{name}.json").read_text("utf-8"))
