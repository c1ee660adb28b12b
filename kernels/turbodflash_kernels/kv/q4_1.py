"""q4_1: 32 numbers in 20 bytes, x = scale * code + min."""

import numpy as np

from turbodflash_kernels.kv._base import F16_MOST, Bytes, Floats, KVType
from turbodflash_kernels.kv._blocks import (
    BLOCK,
    codes,
    half,
    half_at,
    joined,
    nibbles,
    nibbles_at,
    reciprocal,
)


def encode(x: Floats) -> Bytes:
    low = x.min(axis=1)
    scale = (x.max(axis=1) - low) / np.float32(15)
    code = codes((x - low[:, None]) * reciprocal(scale)[:, None] + np.float32(0.5), 15)
    return joined(half(scale), half(low), nibbles(code))


def decode(blocks: Bytes) -> Floats:
    return half_at(blocks, 0) * nibbles_at(blocks, 4).astype(np.float32) + half_at(blocks, 2)


TYPE = KVType("q4_1", BLOCK, 20, F16_MOST, encode, decode)
