"""The engine's errors. Each is a sentence to a person; the class says what a program exits with.

TurbodflashError
├── BadUsage     2  what was asked for cannot be: an option, a path, a name
│   └── Unknown  2  a name that is not on the shelf
├── BadModel     3  a model file cannot be used
└── DoesNotFit   1  memory or context is too small for what was asked
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from turbodflash_kernels.errors import NoDevice, NoKernel, TurbodflashError

__all__ = [
    "BadModel",
    "BadUsage",
    "DoesNotFit",
    "NoDevice",
    "NoKernel",
    "TurbodflashError",
    "Unknown",
]


class BadUsage(TurbodflashError):
    """What was asked for cannot be done as asked."""

    exit_code = 2


class Unknown(BadUsage):
    """No member of a family has this name; the hint is the nearest one, or all of them."""

    def __init__(self, kind: str, name: str, known: Sequence[str]) -> None:
        near = get_close_matches(name, known, n=1)
        there_are = f"there are: {', '.join(known)}" if known else "there are none"
        super().__init__(
            f"no {kind} named {name!r}",
            hint=f"did you mean {near[0]!r}?" if near else there_are,
        )
        self.kind, self.name, self.known = kind, name, tuple(known)


class BadModel(TurbodflashError):
    """A model file cannot be used: damaged, incomplete, or of a kind that is not supported."""

    exit_code = 3


class DoesNotFit(TurbodflashError):
    """Memory or context is too small; the hint says what would fit."""
