"""TQ2_0: 256 weights in 66 bytes, `w = d * (code - 1)`, codes of two bits."""

import numpy as np

from turbodflash_engine.quant._base import Bytes, WeightType, field, half, planes
from turbodflash_kernels.planar import Format, Planar

FORMAT = Format(bits=2, block=32, zero=1, two_level=True)


def decode(raw: Bytes) -> Planar:
    codes = planes(field(raw, 66, at=0, nbytes=64), bits=2, width=32)
    ones = np.ones((len(raw), codes.shape[1] // FORMAT.block), np.int8)
    return Planar(FORMAT, codes, scale=ones, super_scale=half(raw, 66, at=64))


PLUGIN = WeightType("TQ2_0", 35, 256, 66, FORMAT, decode)
