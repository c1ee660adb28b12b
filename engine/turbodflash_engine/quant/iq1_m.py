"""IQ1_M: 256 weights in 56 bytes; as IQ1_S, with an eighth more or less for each eight weights.

A block has no room for its float16 scale: the top four bits of four words make it up.
"""

import numpy as np
from numpy.typing import NDArray

from turbodflash_engine.quant._base import Bytes, WeightType, field
from turbodflash_engine.quant._grids import ONE_BIT_TABLE, fields, joined, marks, odd, one_bit
from turbodflash_kernels.planar import Format, Planar

FORMAT = Format(bits=3, block=16, two_level=True, exponent=-3, table=ONE_BIT_TABLE)


def decode(raw: Bytes) -> Planar:
    eights = fields(field(raw, 56, at=32, nbytes=16), 2, 4)
    upper = (eights & np.uint8(7)).astype(np.uint16)
    chosen = field(raw, 56, at=0, nbytes=32) | upper << np.uint16(8)
    lowered = (eights >> np.uint8(3)) * np.uint8(255)
    words = field(raw, 56, at=48, nbytes=8).view("<u2")
    return Planar(
        FORMAT,
        joined(one_bit()[chosen], marks(4)[lowered]),
        scale=odd(fields(words, 4, 3)),
        super_scale=_super_scales(words),
    )


def _super_scales(words: NDArray[np.uint16]) -> NDArray[np.float16]:
    tops = (words >> np.uint16(12)).reshape(len(words), -1, 4)
    places = np.array([0, 4, 8, 12], np.uint16)
    return np.bitwise_or.reduce(tops << places, axis=2).view(np.float16)


PLUGIN = WeightType("IQ1_M", 29, 256, 56, FORMAT, decode)
