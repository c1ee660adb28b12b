"""Q6_K: 256 weights in 210 bytes, `w = d * scale * (code - 32)`, an int8 scale per 16."""

import numpy as np

from turbodflash_engine.quant._base import Bytes, WeightType, field, half, planes
from turbodflash_kernels.blocks import Blocks, Plane
from turbodflash_kernels.planar import Format, Planar

FORMAT = Format(bits=6, block=16, zero=32, two_level=True)
BLOCKS = Blocks(256, 210, (Plane(0, 4, 64), Plane(128, 2, 32)), scale=208, factors=192)


def decode(raw: Bytes) -> Planar:
    codes = planes(field(raw, 210, at=128, nbytes=64), bits=2, width=32, at=4)
    codes |= planes(field(raw, 210, at=0, nbytes=128), bits=4, width=64)
    return Planar(
        FORMAT,
        codes,
        scale=field(raw, 210, at=192, nbytes=16).view(np.int8),
        super_scale=half(raw, 210, at=208),
    )


PLUGIN = WeightType("Q6_K", 14, 256, 210, FORMAT, decode, BLOCKS)
