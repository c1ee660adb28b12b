"""What the rendering of one template may cost."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from time import monotonic
from typing import Any

_SECONDS = 3.0
_CHARACTERS = 1 << 24
_CHARACTERS_PER_INPUT = 64
_STEP = 16
_LARGEST_SIZE = 100_000
_LARGEST_NUMBER_BITS = 4096

_WIDE_PERCENT = re.compile(r"%(\([^)]*\))?[-#0 +]*(\*|\d{6}|\d*\.(\*|\d{6}))")
_WIDE_BRACES = re.compile(r"\{[^{}]*:[^{}]*(\{|\d{6})")


class TooMuch(Exception):
    """A rendering went over its bounds."""


class Meter:
    """Counts the characters that a rendering makes, and its time; a step and an element of a
    container count as sixteen.

    `charge` is asked after something was made, `allow_...` before something that may grow.
    """

    def __init__(self, given: Any) -> None:
        """given: the rendering's input; a long conversation may cost more."""
        self.limit = _CHARACTERS
        self.limit += _CHARACTERS_PER_INPUT * self.weigh(given)
        self._left = self.limit
        self._deadline = monotonic() + _SECONDS

    def charge_step(self, characters: int) -> None:
        """For one pass of a loop's body, with the characters written out in it."""
        self.charge(_STEP + characters)

    def charge(self, characters: int) -> None:
        self._left -= characters
        if self._left < 0:
            raise self._too_long()
        if monotonic() > self._deadline:
            raise TooMuch(f"it takes longer than {_SECONDS:.0f} s")

    def charge_for(self, value: Any) -> None:
        self.charge(self.weigh(value))

    def weigh(self, value: Any) -> int:
        """How long a value is as text, roughly; what stands in it twice counts twice."""
        weight, stack = 0, [value]
        while stack:
            each = stack.pop()
            weight += _STEP
            if isinstance(each, str | bytes):
                weight += len(each)
            elif isinstance(each, Mapping):
                stack += each.keys()
                stack += each.values()
            elif isinstance(each, list | tuple | set | frozenset):
                stack += each
            if weight + _STEP * len(stack) > self.limit:
                raise self._too_long()
        return weight

    def allow_growth(self, value: Any, arguments: Iterable[Any]) -> None:
        """Before text is replaced, padded, joined or repeated: at worst it is multiplied."""
        largest = max((self._factor(argument) for argument in arguments), default=1)
        if self.weigh(value) * largest > 2 * self.limit:
            raise self._too_long()

    def allow_product(self, left: Any, right: Any) -> None:
        """Before `left * right`."""
        if isinstance(left, str | list | tuple) or isinstance(right, str | list | tuple):
            text, times = (right, left) if isinstance(left, int) else (left, right)
            self.allow_growth(text, [times])
        elif isinstance(left, int) and isinstance(right, int):
            self._allow_bits(left.bit_length() + right.bit_length())

    def allow_power(self, base: Any, exponent: Any) -> None:
        """Before `base ** exponent`."""
        if isinstance(base, int) and isinstance(exponent, int):
            self._allow_bits(base.bit_length() * abs(exponent))

    def allow_format(self, format: str) -> None:
        """Before a format is filled in: a width makes any length out of nothing."""
        if _WIDE_PERCENT.search(format) or _WIDE_BRACES.search(format):
            raise TooMuch("it formats to a width that is not a small number")

    def _factor(self, argument: Any) -> int:
        if not isinstance(argument, int):
            return self.weigh(argument)
        if abs(argument) > _LARGEST_SIZE:
            raise TooMuch(f"it uses a number above {_LARGEST_SIZE} as a size")
        return max(1, abs(argument))

    def _allow_bits(self, bits: int) -> None:
        if bits > _LARGEST_NUMBER_BITS:
            raise TooMuch(f"it computes with numbers of more than {_LARGEST_NUMBER_BITS} bits")

    def _too_long(self) -> TooMuch:
        return TooMuch(f"it makes more than {self.limit} characters")


meter: ContextVar[Meter] = ContextVar("meter")
"""The meter of the rendering that is going on."""
