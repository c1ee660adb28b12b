"""How a file keeps quantised rows, for devices that take its blocks apart by themselves.

`Part.decode` gives the same numbers in planar form. What is described here saves the way over it:
a device may go from the bytes of the file to the layout it likes best at the speed of memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Plane(NamedTuple):
    """`bits` of each code, from byte `at` of a block on.

    Runs of `width` bytes hold 8 / bits runs of as many codes: the lowest bits of the bytes first.
    width: 1, or a multiple of 4.
    """

    at: int
    bits: int
    width: int


class Blocks(NamedTuple):
    """A block of `nbytes` holds `inputs` codes, 32 or 256 of them, and what they mean.

    planes: of the codes, their lowest bits first; one or two. flip: codes are stored with these
    bits the other way round.
    scale, min: where the float16 scale and the minimum stand; -1 = there is none. Of two-level
    formats they are those of the 256, and the latter is subtracted.
    factors: where the scales of the blocks of two-level formats stand: int8 one by one, or where
    the format has minima eight pairs of 6 bits in 12 bytes.
    """

    inputs: int
    nbytes: int
    planes: tuple[Plane, ...]
    scale: int
    min: int = -1
    factors: int = -1
    flip: int = 0


class Stored(NamedTuple):
    """Rows as they lie in a file.

    blocks: None = values of a dense format, as they are. data: uint8 [rows, row_bytes], contiguous.
    taken(start, stop): must be told of rows that will not be read again; from any thread.
    """

    blocks: Blocks | None
    data: NDArray[np.uint8]
    taken: Callable[[int, int], Any]
