"""q4_0: 32 numbers in 18 bytes, x = scale * (code - 8)."""

import numpy as np

from turbodflash_kernels.kv._base import F16_MOST, Bytes, Floats, KVType
from turbodflash_kernels.kv._blocks import (
    BLOCK,
    codes,
    extreme,
    half,
    half_at,
    joined,
    nibbles,
    nibbles_at,
    reciprocal,
)


def encode(x: Floats) -> Bytes:
    scale = extreme(x) / np.float32(-8)
    code = codes(x * reciprocal(scale)[:, None] + np.float32(8.5), 15)
    return joined(half(scale), nibbles(code))


def decode(blocks: Bytes) -> Floats:
    return half_at(blocks, 0) * (nibbles_at(blocks, 2).astype(np.float32) - np.float32(8))


TYPE = KVType("q4_0", BLOCK, 18, 8 * F16_MOST, encode, decode)
