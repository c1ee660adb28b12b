"""IQ2_XS: 256 weights in 74 bytes; a grid point and seven signs in 16 bits, a scale per 16."""

import numpy as np

from turbodflash_engine.quant._base import Bytes, WeightType, field, half
from turbodflash_engine.quant._grids import (
    TWO_BIT_SIZES,
    even_marks,
    fields,
    grid_format,
    joined,
    odd,
    points,
)
from turbodflash_kernels.planar import Planar

FORMAT = grid_format(TWO_BIT_SIZES, bits=3, block=16, exponent=-3)


def decode(raw: Bytes) -> Planar:
    eights = field(raw, 74, at=2, nbytes=64).view("<u2")
    chosen, signs = eights & np.uint16(511), eights >> np.uint16(9)
    return Planar(
        FORMAT,
        joined(points("IQ2_XS", TWO_BIT_SIZES)[chosen], even_marks(4)[signs]),
        scale=odd(fields(field(raw, 74, at=66, nbytes=8), 2, 4)),
        super_scale=half(raw, 74, at=0),
    )


PLUGIN = WeightType("IQ2_XS", 17, 256, 74, FORMAT, decode)
