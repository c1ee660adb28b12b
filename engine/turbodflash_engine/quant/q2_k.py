"""Q2_K: 256 weights in 84 bytes; per 16 a 4-bit scale and a 4-bit minimum in one byte."""

import numpy as np

from turbodflash_engine.quant._base import Bytes, WeightType, field, half, planes
from turbodflash_kernels.planar import Format, Planar

FORMAT = Format(bits=2, block=16, affine=True, two_level=True, nibbles=True)


def decode(raw: Bytes) -> Planar:
    factors = field(raw, 84, at=0, nbytes=16)
    return Planar(
        FORMAT,
        planes(field(raw, 84, at=16, nbytes=64), bits=2, width=32),
        scale=(factors & np.uint8(15)).view(np.int8),
        min=(factors >> np.uint8(4)).view(np.int8),
        super_scale=half(raw, 84, at=80),
        super_min=-half(raw, 84, at=82),
    )


PLUGIN = WeightType("Q2_K", 10, 256, 84, FORMAT, decode)
