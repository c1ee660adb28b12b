"""NVFP4: 64 weights in 36 bytes, `w = scale * table[nibble]`, a scale of 8 bits per 16 weights."""

import numpy as np

from turbodflash_engine.quant._base import E2M1_TABLE, Bytes, WeightType, field, planes
from turbodflash_kernels.planar import Format, Planar

FORMAT = Format(bits=4, block=16, table=E2M1_TABLE)

_BYTES = np.arange(256)
_EXPONENTS, _MANTISSAS = _BYTES >> 3 & 15, _BYTES & 7
_SCALES = np.ldexp(  # four bits of exponent, three of mantissa; half, for the table is doubled
    np.where(_EXPONENTS == 0, _MANTISSAS, 8 + _MANTISSAS), np.maximum(_EXPONENTS, 1) - 11
).astype(np.float16)
_SCALES[127] = 0  # what would be a NaN


def decode(raw: Bytes) -> Planar:
    codes = planes(field(raw, 36, at=4, nbytes=32), bits=4, width=8)
    return Planar(FORMAT, codes, scale=_SCALES[field(raw, 36, at=0, nbytes=4)])


PLUGIN = WeightType("NVFP4", 40, 64, 36, FORMAT, decode)
