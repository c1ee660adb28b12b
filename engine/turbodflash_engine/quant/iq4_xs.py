"""IQ4_XS: 256 weights in 136 bytes, `w = d * scale * table[nibble]`, a 6-bit scale per 32."""

import numpy as np
from numpy.typing import NDArray

from turbodflash_engine.quant._base import IQ4_TABLE, Bytes, WeightType, field, half, planes
from turbodflash_kernels.planar import Format, Planar

FORMAT = Format(bits=4, block=32, two_level=True, table=IQ4_TABLE)
_EIGHT = np.arange(8, dtype=np.uint32)


def decode(raw: Bytes) -> Planar:
    return Planar(
        FORMAT,
        planes(field(raw, 136, at=8, nbytes=128), bits=4, width=16),
        scale=_scales(raw),
        super_scale=half(raw, 136, at=0),
    )


def _scales(raw: Bytes) -> NDArray[np.int8]:
    """Eight a block, four lower bits from one word and two upper bits from another."""
    upper = field(raw, 136, at=2, nbytes=2).view("<u2").astype(np.uint32)[:, :, None]
    lower = field(raw, 136, at=4, nbytes=4).view("<u4")[:, :, None]
    scales = ((lower >> 4 * _EIGHT) & 15) | (((upper >> 2 * _EIGHT) & 3) << 4)
    return (scales.astype(np.int8) - np.int8(32)).reshape(len(raw), -1)


PLUGIN = WeightType("IQ4_XS", 23, 256, 136, FORMAT, decode)
