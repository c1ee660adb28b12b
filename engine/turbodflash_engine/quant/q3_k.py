"""Q3_K: 256 weights in 110 bytes, `w = d * scale * (code - 4)`; the third bits stand together."""

from turbodflash_engine.quant._base import Bytes, WeightType, field, half, planes, sixteen_scales
from turbodflash_kernels.planar import Format, Planar

FORMAT = Format(bits=3, block=16, zero=4, two_level=True)


def decode(raw: Bytes) -> Planar:
    codes = planes(field(raw, 110, at=0, nbytes=32), bits=1, width=32, at=2)
    codes |= planes(field(raw, 110, at=32, nbytes=64), bits=2, width=32)
    return Planar(
        FORMAT,
        codes,
        scale=sixteen_scales(field(raw, 110, at=96, nbytes=12)),
        super_scale=half(raw, 110, at=108),
    )


PLUGIN = WeightType("Q3_K", 11, 256, 110, FORMAT, decode)
