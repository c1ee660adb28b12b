"""MXFP4: 32 weights in 17 bytes, `w = 2^(e - 128) * table[nibble]`, low nibbles first."""

import numpy as np

from turbodflash_engine.quant._base import E2M1_TABLE, Bytes, WeightType, field, planes
from turbodflash_kernels.planar import Format, Planar

FORMAT = Format(bits=4, block=32, powers=True, table=E2M1_TABLE)


def decode(raw: Bytes) -> Planar:
    codes = planes(field(raw, 17, at=1, nbytes=16), bits=4, width=16)
    exponents = field(raw, 17, at=0, nbytes=1) ^ np.uint8(128)
    return Planar(FORMAT, codes, scale=exponents.view(np.int8))


PLUGIN = WeightType("MXFP4", 39, 32, 17, FORMAT, decode)
