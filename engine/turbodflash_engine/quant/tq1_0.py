"""TQ1_0: 256 weights in 54 bytes, `w = d * (-1, 0 or 1)`: five digits of base three in a byte.

A byte is the fraction digits / 3^5, rounded up to 8 bits: times 3^n, digit n is its whole part.
"""

import numpy as np

from turbodflash_engine.quant._base import Bytes, WeightType, field, half
from turbodflash_kernels.planar import Format, Planar

FORMAT = Format(bits=2, block=32, zero=1, two_level=True)
_PLACES = ((0, 32, 5), (32, 16, 5), (48, 4, 4))  # from a byte on, how many, and their digits
_BYTES = np.arange(256, dtype=np.uint32)
_DIGITS = np.stack([((_BYTES * 3**n & 255) * 3 >> 8).astype(np.uint8) for n in range(5)])


def decode(raw: Bytes) -> Planar:
    packed = field(raw, 54, at=0, nbytes=52).reshape(-1, 52)
    codes = np.concatenate(
        [
            _DIGITS[n][packed[:, first : first + count]]
            for first, count, digits in _PLACES
            for n in range(digits)
        ],
        axis=1,
    ).reshape(len(raw), -1)
    ones = np.ones((len(raw), codes.shape[1] // FORMAT.block), np.int8)
    return Planar(FORMAT, codes, scale=ones, super_scale=half(raw, 54, at=52))


PLUGIN = WeightType("TQ1_0", 34, 256, 54, FORMAT, decode)
