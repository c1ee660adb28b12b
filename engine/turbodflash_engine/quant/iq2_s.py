"""IQ2_S: 256 weights in 82 bytes; grid points of ten bits, a byte of signs each, a scale per 16."""

import numpy as np

from turbodflash_engine.quant._base import Bytes, WeightType, field, half
from turbodflash_engine.quant._grids import (
    TWO_BIT_SIZES,
    fields,
    grid_format,
    joined,
    marks,
    odd,
    points,
)
from turbodflash_kernels.planar import Planar

FORMAT = grid_format(TWO_BIT_SIZES, bits=3, block=16, exponent=-3)


def decode(raw: Bytes) -> Planar:
    upper = fields(field(raw, 82, at=66, nbytes=8), 4, 2).astype(np.uint16)
    chosen = field(raw, 82, at=2, nbytes=32) | upper << np.uint16(8)
    return Planar(
        FORMAT,
        joined(points("IQ2_S", TWO_BIT_SIZES)[chosen], marks(4)[field(raw, 82, at=34, nbytes=32)]),
        scale=odd(fields(field(raw, 82, at=74, nbytes=8), 2, 4)),
        super_scale=half(raw, 82, at=0),
    )


PLUGIN = WeightType("IQ2_S", 22, 256, 82, FORMAT, decode)
