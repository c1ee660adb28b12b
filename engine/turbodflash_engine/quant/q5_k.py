"""Q5_K: 256 weights in 176 bytes; Q4_K with the fifth bits of eight sub-blocks in 32 bytes."""

from turbodflash_engine.quant._base import Bytes, WeightType, field, half, planes, scales_and_mins
from turbodflash_kernels.blocks import Blocks, Plane
from turbodflash_kernels.planar import Format, Planar

FORMAT = Format(bits=5, block=32, affine=True, two_level=True)
BLOCKS = Blocks(256, 176, (Plane(48, 4, 32), Plane(16, 1, 32)), scale=0, min=2, factors=4)


def decode(raw: Bytes) -> Planar:
    codes = planes(field(raw, 176, at=16, nbytes=32), bits=1, width=32, at=4)
    codes |= planes(field(raw, 176, at=48, nbytes=128), bits=4, width=32)
    scales, mins = scales_and_mins(field(raw, 176, at=4, nbytes=12))
    return Planar(
        FORMAT,
        codes,
        scale=scales,
        min=mins,
        super_scale=half(raw, 176, at=0),
        super_min=-half(raw, 176, at=2),
    )


PLUGIN = WeightType("Q5_K", 13, 256, 176, FORMAT, decode, BLOCKS)
