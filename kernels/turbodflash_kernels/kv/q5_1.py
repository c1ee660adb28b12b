"""q5_1: 32 numbers in 24 bytes, x = scale * code + min, the codes' fifth bits in a word."""

import numpy as np

from turbodflash_kernels.kv._base import F16_MOST, Bytes, Floats, KVType
from turbodflash_kernels.kv._blocks import (
    BLOCK,
    codes,
    fifth_bits,
    fifth_bits_at,
    half,
    half_at,
    joined,
    nibbles,
    nibbles_at,
    reciprocal,
)


def encode(x: Floats) -> Bytes:
    low = x.min(axis=1)
    scale = (x.max(axis=1) - low) / np.float32(31)
    code = codes((x - low[:, None]) * reciprocal(scale)[:, None] + np.float32(0.5), 31)
    return joined(half(scale), half(low), fifth_bits(code), nibbles(code & 0xF))


def decode(blocks: Bytes) -> Floats:
    code = nibbles_at(blocks, 8) | fifth_bits_at(blocks, 4)
    return half_at(blocks, 0) * code.astype(np.float32) + half_at(blocks, 2)


TYPE = KVType("q5_1", BLOCK, 24, F16_MOST, encode, decode)
