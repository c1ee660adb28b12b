"""IQ1_S: 256 weights in 50 bytes, `w = d * scale * (-1, 0 or 1, plus or minus 1/8)`."""

import numpy as np

from turbodflash_engine.quant._base import Bytes, WeightType, field, half
from turbodflash_engine.quant._grids import ONE_BIT_TABLE, fields, joined, marks, odd, one_bit
from turbodflash_kernels.planar import Format, Planar

FORMAT = Format(bits=3, block=32, two_level=True, exponent=-3, table=ONE_BIT_TABLE)


def decode(raw: Bytes) -> Planar:
    words = field(raw, 50, at=34, nbytes=16).view("<u2")
    upper = fields(words, 4, 3)
    chosen = field(raw, 50, at=2, nbytes=32) | upper << np.uint16(8)
    lowered = np.repeat((words >> np.uint16(15)) * np.uint8(255), 4, axis=1)
    return Planar(
        FORMAT,
        joined(one_bit()[chosen], marks(4)[lowered]),
        scale=odd((words >> np.uint16(12)) & np.uint16(7)),
        super_scale=half(raw, 50, at=0),
    )


PLUGIN = WeightType("IQ1_S", 19, 256, 50, FORMAT, decode)
