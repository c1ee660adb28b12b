"""q5_0: 32 numbers in 22 bytes, x = scale * (code - 16), the codes' fifth bits in a word."""

import numpy as np

from turbodflash_kernels.kv._base import F16_MOST, Bytes, Floats, KVType
from turbodflash_kernels.kv._blocks import (
    BLOCK,
    codes,
    extreme,
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
    scale = extreme(x) / np.float32(-16)
    code = codes(x * reciprocal(scale)[:, None] + np.float32(16.5), 31)
    return joined(half(scale), fifth_bits(code), nibbles(code & 0xF))


def decode(blocks: Bytes) -> Floats:
    code = nibbles_at(blocks, 6) | fifth_bits_at(blocks, 2)
    return half_at(blocks, 0) * (code.astype(np.float32) - np.float32(16))


TYPE = KVType("q5_0", BLOCK, 22, 16 * F16_MOST, encode, decode)
