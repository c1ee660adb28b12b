"""IQ3_XXS: 256 weights in 98 bytes; grid points of four, per 32 their signs and a scale."""

import numpy as np

from turbodflash_engine.quant._base import Bytes, WeightType, field, half
from turbodflash_engine.quant._grids import (
    even_marks,
    fields,
    grid_format,
    joined,
    odd,
    points,
)
from turbodflash_kernels.planar import Planar

SIZES = (4, 12, 20, 28, 36, 44, 52, 62)
FORMAT = grid_format(SIZES, bits=4, block=32, exponent=-2)


def decode(raw: Bytes) -> Planar:
    words = field(raw, 98, at=66, nbytes=32).view("<u4")
    signs, scales = words & np.uint32(0x0FFFFFFF), words >> np.uint32(28)
    return Planar(
        FORMAT,
        joined(
            points("IQ3_XXS", SIZES)[field(raw, 98, at=2, nbytes=64)],
            even_marks(8)[fields(signs, 4, 7)],
        ),
        scale=odd(scales),
        super_scale=half(raw, 98, at=0),
    )


PLUGIN = WeightType("IQ3_XXS", 18, 256, 98, FORMAT, decode)
