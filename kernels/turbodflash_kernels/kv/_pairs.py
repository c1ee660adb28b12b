"""Heads of 64 numbers in a block of a turbo type: two codes for each number.

A head that fills half a block has zeros behind it. Its last butterfly copies: number 64 + i of the
rotated block is number i, or its negative where TWINS says so, and rotated back, all that is kept
of the two is their mean. So the codes of both are chosen together, as the pair of levels whose sum
is nearest to twice the number: 129 sums of two of sixteen levels, 33 of eight, 9 of four. The bytes
mean what they always do; a reader need not know how they were chosen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turbodflash_kernels.kv._base import Bytes, Floats
from turbodflash_kernels.kv._rotation import SIGNS_AFTER, TURBO_BLOCK

HALF = TURBO_BLOCK // 2
TWINS = SIGNS_AFTER[:HALF] * SIGNS_AFTER[HALF:]
"""1 where both numbers of a pair are equal, -1 where the second is the negative of the first."""

LENGTH = np.float32(25 / 32)
"""What a block is scaled to before it is coded, and the norm undoes. Sums of levels lie farther
apart the larger they are: at 1, where single levels are best, the error would be twice as large."""


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Sums of two levels, from 0 up, and the codes that make them.

    sums: f32 [n + 1] ascending; middles: f32 [n], between them; first, second: uint8 [n + 1], of
    all pairs of a sum that whose levels are closest, the larger code first. A negative sum has the
    opposite codes (`last` minus the code), in the same order.
    """

    sums: Floats
    middles: Floats
    first: Bytes
    second: Bytes
    last: int

    @classmethod
    def of(cls, levels: Floats) -> Pairs:
        """levels: all of a type, ascending, each with both signs."""
        count = len(levels)
        closest_first = [(code + apart, code) for apart in range(count) for code in range(count)]
        found: dict[float, tuple[int, int]] = {}
        for first, second in closest_first:
            if first < count and levels[first] + levels[second] >= 0:
                found.setdefault(float(levels[first] + levels[second]), (first, second))
        sums = np.array(sorted(found), np.float32)
        codes = np.array([found[float(total)] for total in sums], np.uint8)
        middles = (sums[1:] + sums[:-1]) * np.float32(0.5)
        return cls(sums, middles, codes[:, 0], codes[:, 1], count - 1)

    def nearest(self, doubled: Floats) -> tuple[Bytes, Floats]:
        """The codes [n, 128] of pairs for twice their numbers [n, 64], and the sums they have.

        What lies in the middle of two sums goes away from zero.
        """
        place = np.searchsorted(self.middles, np.abs(doubled), side="right")
        negative = doubled < 0
        first = _mirrored(self.first[place], negative, self.last)
        second = _mirrored(self.second[place], negative ^ (TWINS < 0), self.last)
        sums = np.where(negative, -self.sums[place], self.sums[place])
        return np.concatenate([first, second], axis=1), sums


def means(blocks: Floats) -> Floats:
    """What a rotated block [..., 128] holds of a head of 64 numbers, rotated: f32 [..., 64]."""
    return (blocks[..., :HALF] + blocks[..., HALF:] * TWINS) * blocks.dtype.type(0.5)


def _mirrored(code: Bytes, where: NDArray[Any], last: int) -> Bytes:
    """Codes of the opposite levels, where it is said."""
    return np.where(where, np.uint8(last) - code, code)
