"""Codes of 8 bits in two streams: six bits that tell nearly all, and the two lowest.

A head is a matrix whose largest products are searched for. The upper bits, three quarters of its
bytes, say which rows cannot be among them; only the others are computed with all eight. Both
streams are tiles as in layout.py: the upper one with scales, the lower one of planes alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from turbodflash_kernels._cpu import layout
from turbodflash_kernels.planar import Format

WHOLE = Format(bits=8, block=32, zero=128)
UPPER = Format(bits=6, block=32)
LOWER = Format(bits=2, block=32)
LOWER_BYTES = layout.TILE * layout.BLOCK * LOWER.bits // 8  # of a block
STEP = 1 << LOWER.bits  # of the upper codes: what one stands for in whole ones
MIDDLE = (STEP - 1) / 2  # of the lower codes: upper ones alone stand for it


@dataclass(frozen=True, slots=True)
class View:
    """What a product sees of a matrix.

    format: of its codes. lift: is added to what they stand for. step: of whole ones, that is how
    many. upper, lower: in which streams they are; without the lower one, they are all in the first.
    """

    format: Format
    lift: float = 0.0
    step: int = 1
    upper: bool = True
    lower: bool = False

    @property
    def stored(self) -> Format:
        """What the first stream holds, with the scales of all."""
        return UPPER if self.lower else self.format


def lifted(format: Format) -> View:
    """All codes in one stream. Where it can be, their zero is a lift: the sum of the activations is
    known as a float, so that nothing is done with integers for every row.

    Codes of 8 bits need theirs to fit a sign and seven bits.
    """
    if format.bits == WHOLE.bits or format.table or format.block < layout.BLOCK:
        return View(format)
    return View(replace(format, zero=0), lift=-float(format.zero))


BOTH = View(WHOLE, lower=True)
UPPER_ALONE = View(UPPER, (MIDDLE - WHOLE.zero) / STEP, STEP)
LOWER_ALONE = View(LOWER, -MIDDLE, upper=False, lower=True)


def fits(format: Format, cols: int) -> bool:
    """Whether a matrix can be kept in two streams."""
    return format == WHOLE and cols % layout.BLOCK == 0
