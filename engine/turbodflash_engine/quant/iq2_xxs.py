"""IQ2_XXS: 256 weights in 66 bytes; per 32 four grid points of eight, their signs and a scale."""

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

FORMAT = grid_format(TWO_BIT_SIZES, bits=3, block=32, exponent=-3)


def decode(raw: Bytes) -> Planar:
    pairs = field(raw, 66, at=2, nbytes=64).view("<u4").reshape(len(raw), -1, 2)
    chosen = np.ascontiguousarray(pairs[:, :, 0]).view(np.uint8)
    signs, scales = pairs[:, :, 1] & np.uint32(0x0FFFFFFF), pairs[:, :, 1] >> np.uint32(28)
    return Planar(
        FORMAT,
        joined(points("IQ2_XXS", TWO_BIT_SIZES)[chosen], even_marks(4)[fields(signs, 4, 7)]),
        scale=odd(scales),
        super_scale=half(raw, 66, at=0),
    )


PLUGIN = WeightType("IQ2_XXS", 16, 256, 66, FORMAT, decode)
