"""IQ3_S: 256 weights in 110 bytes; grid points of nine bits for four, a scale per 32."""

import numpy as np

from turbodflash_engine.quant._base import Bytes, WeightType, field, half
from turbodflash_engine.quant._grids import fields, grid_format, joined, marks, odd, points
from turbodflash_kernels.planar import Planar

SIZES = (1, 3, 5, 7, 9, 11, 13, 15)
FORMAT = grid_format(SIZES, bits=4, block=32, exponent=0)


def decode(raw: Bytes) -> Planar:
    upper = fields(field(raw, 110, at=66, nbytes=8), 8, 1).astype(np.uint16)
    chosen = field(raw, 110, at=2, nbytes=64) | upper << np.uint16(8)
    return Planar(
        FORMAT,
        joined(points("IQ3_S", SIZES)[chosen], marks(8)[field(raw, 110, at=74, nbytes=32)]),
        scale=odd(fields(field(raw, 110, at=106, nbytes=4), 2, 4)),
        super_scale=half(raw, 110, at=0),
    )


PLUGIN = WeightType("IQ3_S", 21, 256, 110, FORMAT, decode)
