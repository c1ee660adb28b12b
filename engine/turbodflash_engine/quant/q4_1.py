"""Q4_1: 32 weights in 20 bytes, `w = scale * nibble + min`, low nibbles first."""

from turbodflash_engine.quant._base import Bytes, WeightType, field, half, planes
from turbodflash_kernels.blocks import Blocks, Plane
from turbodflash_kernels.planar import Format, Planar

FORMAT = Format(bits=4, block=32, affine=True)
BLOCKS = Blocks(32, 20, (Plane(4, 4, 16),), scale=0, min=2)


def decode(raw: Bytes) -> Planar:
    codes = planes(field(raw, 20, at=4, nbytes=16), bits=4, width=16)
    return Planar(FORMAT, codes, scale=half(raw, 20, at=0), min=half(raw, 20, at=2))


PLUGIN = WeightType("Q4_1", 3, 32, 20, FORMAT, decode, BLOCKS)
