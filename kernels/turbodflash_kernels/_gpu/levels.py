"""What codes of types with levels stand for, as kernels know it when they are compiled."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import triton

from turbodflash_kernels._gpu.codes import LAYOUTS

WITH_LEVELS = ("iq4_nl", "turbo2", "turbo3", "turbo4")


def _floats(kind: str, name: str) -> list[float]:
    module = import_module(f"turbodflash_kernels.kv.{kind}")
    return [float(number) for number in getattr(module, name)]


LEVELS = {kind: _floats(kind, "LEVELS") for kind in WITH_LEVELS}
MIDDLES = {kind: _floats(kind, "MIDDLES") for kind in WITH_LEVELS}


def _entries(kind: str) -> list[int]:
    """What fields mean: levels as float16, those of iq4_nl as whole numbers without their signs."""
    levels = LEVELS[kind]
    if kind == "iq4_nl":
        return [abs(int(level)) for level in levels]
    chosen = [level for level in levels if level > 0] if LAYOUTS[kind].signed else levels
    return [int(bits) for bits in np.array(chosen, np.float16).view(np.uint16)]


def _words(entries: list[int], shift: int) -> list[int]:
    """Bits shift..shift+7 of sixteen entries, 0 after the last, four in an int32."""
    octets = [(entry >> shift) & 0xFF for entry in entries] + [0] * (16 - len(entries))
    return [int(word) for word in np.array(octets, np.uint8).view("<i4")]


ENTRIES = {kind: _entries(kind) for kind in WITH_LEVELS}
TABLES = {
    kind: {shift: _words(entries, shift) for shift in (0, 8)} for kind, entries in ENTRIES.items()
}


@triton.constexpr_function
def middles(kind):
    """How many there are between levels."""
    return len(MIDDLES[kind])


@triton.constexpr_function
def middle(kind, index):
    return MIDDLES[kind][index]


@triton.constexpr_function
def level(kind, code):
    return LEVELS[kind][code]


@triton.constexpr_function
def entry(kind, field):
    return ENTRIES[kind][field]


@triton.constexpr_function
def table(kind, shift, word):
    """Bits shift..shift+7 of four entries from the fourth times `word` on, as an int32."""
    return TABLES[kind][shift][word]
