"""Q5_0: 32 weights in 22 bytes, `w = scale * (code - 16)`; the fifth bits stand together."""

from turbodflash_engine.quant._base import Bytes, WeightType, field, fifth_bits, half, planes
from turbodflash_kernels.blocks import Blocks, Plane
from turbodflash_kernels.planar import Format, Planar

FORMAT = Format(bits=5, block=32, zero=16)
BLOCKS = Blocks(32, 22, (Plane(6, 4, 16), Plane(2, 1, 1)), scale=0)


def decode(raw: Bytes) -> Planar:
    codes = planes(field(raw, 22, at=6, nbytes=16), bits=4, width=16)
    codes |= fifth_bits(field(raw, 22, at=2, nbytes=4))
    return Planar(FORMAT, codes, scale=half(raw, 22, at=0))


PLUGIN = WeightType("Q5_0", 6, 32, 22, FORMAT, decode, BLOCKS)
