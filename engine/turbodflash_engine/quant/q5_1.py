"""Q5_1: 32 weights in 24 bytes, `w = scale * code + min`; the fifth bits stand together."""

from turbodflash_engine.quant._base import Bytes, WeightType, field, fifth_bits, half, planes
from turbodflash_kernels.blocks import Blocks, Plane
from turbodflash_kernels.planar import Format, Planar

FORMAT = Format(bits=5, block=32, affine=True)
BLOCKS = Blocks(32, 24, (Plane(8, 4, 16), Plane(4, 1, 1)), scale=0, min=2)


def decode(raw: Bytes) -> Planar:
    codes = planes(field(raw, 24, at=8, nbytes=16), bits=4, width=16)
    codes |= fifth_bits(field(raw, 24, at=4, nbytes=4))
    return Planar(FORMAT, codes, scale=half(raw, 24, at=0), min=half(raw, 24, at=2))


PLUGIN = WeightType("Q5_1", 7, 32, 24, FORMAT, decode, BLOCKS)
