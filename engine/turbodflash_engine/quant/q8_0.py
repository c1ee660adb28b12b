"""Q8_0: 32 weights in 34 bytes, `w = scale * int8`; the planar code is the int8 plus 128."""

import numpy as np

from turbodflash_engine.quant._base import Bytes, WeightType, field, half
from turbodflash_kernels.blocks import Blocks, Plane
from turbodflash_kernels.planar import Format, Planar

FORMAT = Format(bits=8, block=32, zero=128)
BLOCKS = Blocks(32, 34, (Plane(2, 8, 32),), scale=0, flip=0x80)


def decode(raw: Bytes) -> Planar:
    codes = field(raw, 34, at=2, nbytes=32)
    codes ^= np.uint8(128)
    return Planar(FORMAT, codes, scale=half(raw, 34, at=0))


PLUGIN = WeightType("Q8_0", 8, 32, 34, FORMAT, decode, BLOCKS)
