"""Randomness keyed by position: the draw for a place never depends on what happened before it.

A drafted token can therefore be checked with exactly the noise that plain decoding would use.
"""

from __future__ import annotations

import os
from enum import IntEnum

from turbodflash_engine.options import RANDOM_SEED

_WORD = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15  # 2**64 / golden ratio, odd: multiples of it visit every word


class Stream(IntEnum):
    """Who draws. Streams of one seed are independent of each other."""

    TOKEN = 0
    XTC = 1
    ACCEPTANCE = 2


def resolve_seed(seed: int, attempt: int = 0) -> int:
    """The seed an answer draws on, in [0, 2**32). -1 is a fresh random one."""
    if seed in (-1, RANDOM_SEED):
        return int.from_bytes(os.urandom(8), "little") % RANDOM_SEED
    return (seed + attempt) % RANDOM_SEED


def uniform(seed: int, position: int, stream: Stream) -> float:
    """A number in [0, 1), a function of the three arguments only."""
    word = seed
    for key in (stream, position):
        word = _mixed((word + (key + 1) * _GOLDEN) & _WORD)
    return (word >> 11) * 2.0**-53


def _mixed(word: int) -> int:
    """The SplitMix64 finaliser: a bijection in which every input bit reaches every output bit."""
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _WORD
    return word ^ (word >> 31)
