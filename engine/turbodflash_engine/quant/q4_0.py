"""Q4_0: 32 weights in 18 bytes, `w = scale * (nibble - 8)`, low nibbles first."""

from turbodflash_engine.quant._base import Bytes, WeightType, field, half, planes
from turbodflash_kernels.blocks import Blocks, Plane
from turbodflash_kernels.planar import Format, Planar

FORMAT = Format(bits=4, block=32, zero=8)
BLOCKS = Blocks(32, 18, (Plane(2, 4, 16),), scale=0)


def decode(raw: Bytes) -> Planar:
    codes = planes(field(raw, 18, at=2, nbytes=16), bits=4, width=16)
    return Planar(FORMAT, codes, scale=half(raw, 18, at=0))


PLUGIN = WeightType("Q4_0", 2, 32, 18, FORMAT, decode, BLOCKS)
