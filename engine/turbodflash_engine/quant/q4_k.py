"""Q4_K: 256 weights in 144 bytes, `w = d * scale * nibble - dmin * min`, 6-bit pairs per 32."""

from turbodflash_engine.quant._base import Bytes, WeightType, field, half, planes, scales_and_mins
from turbodflash_kernels.blocks import Blocks, Plane
from turbodflash_kernels.planar import Format, Planar

FORMAT = Format(bits=4, block=32, affine=True, two_level=True)
BLOCKS = Blocks(256, 144, (Plane(16, 4, 32),), scale=0, min=2, factors=4)


def decode(raw: Bytes) -> Planar:
    scales, mins = scales_and_mins(field(raw, 144, at=4, nbytes=12))
    return Planar(
        FORMAT,
        planes(field(raw, 144, at=16, nbytes=128), bits=4, width=32),
        scale=scales,
        min=mins,
        super_scale=half(raw, 144, at=0),
        super_min=-half(raw, 144, at=2),
    )


PLUGIN = WeightType("Q4_K", 12, 256, 144, FORMAT, decode, BLOCKS)
