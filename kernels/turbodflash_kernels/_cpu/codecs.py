"""How the types of the package `kv` keep codes in a block, for kernels that take them apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from turbodflash_kernels.kv import kv_type

PLAIN = ("f32", "f16", "bf16")
WORDS = ("q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl", "turbo2", "turbo3", "turbo4")
TYPES = (*PLAIN, "q8_0", *WORDS)
"""What the CPU's kernels know."""


@dataclass(frozen=True, slots=True)
class Codes:
    """A block: float16 fields, then words of 32 bits with a code in each `bits` of them.

    at(word, place): the element that a code stands for. paired: a byte holds the elements j and
    j + 16. high: words with one more bit of each element, in front of the others if `high_first`.
    A number is scale * (code - zero), scale * code + minimum, or scale * table[code].
    """

    bits: int
    words: int
    at: Callable[[int, int], int]
    paired: bool = False
    high: int = 0
    high_first: bool = False
    zero: int = 0
    minimum: bool = False
    table: tuple[float, ...] = ()

    @property
    def fields(self) -> int:
        """Float16 numbers in front: the scale, and the minimum."""
        return 2 if self.minimum else 1

    @property
    def numbers(self) -> int:
        return self.words * 32 // self.bits

    @property
    def first_low(self) -> int:
        return self.high if self.high_first else 0

    @property
    def first_high(self) -> int:
        return 0 if self.high_first else self.words

    @property
    def block_bytes(self) -> int:
        return 2 * self.fields + 4 * (self.words + self.high)


def codes_of(name: str) -> Codes:
    """Of a type of WORDS."""
    if name.startswith("turbo"):
        return _turbo(name)
    wide = name.startswith("q5")
    return Codes(
        4,
        4,
        lambda word, place: 4 * word + place // 2 + 16 * (place % 2),
        paired=True,
        high=int(wide),
        high_first=wide,
        zero={"q4_0": 8, "q5_0": 16}.get(name, 0),
        minimum=name.endswith("_1"),
        table=levels_of(name) if name == "iq4_nl" else (),
    )


def _turbo(name: str) -> Codes:
    table = levels_of(name)
    if name == "turbo4":
        return Codes(4, 16, lambda word, place: 8 * word + place, table=table)
    high = 4 if name == "turbo3" else 0
    return Codes(2, 8, lambda word, place: 16 * word + place, high=high, table=table)


def levels_of(name: str) -> tuple[float, ...]:
    """What codes of a type with a table stand for, ascending."""
    return _floats(name, "LEVELS")


def middles_of(name: str) -> tuple[float, ...]:
    """Between the levels."""
    return _floats(name, "MIDDLES")


def _floats(name: str, what: str) -> tuple[float, ...]:
    assert kv_type(name).quantised
    return tuple(map(float, getattr(import_module(f"turbodflash_kernels.kv.{name}"), what)))
