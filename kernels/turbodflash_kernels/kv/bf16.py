"""bf16: the upper half of a float32, rounded to even."""

import numpy as np

from turbodflash_kernels.kv._base import Bytes, Floats, KVType

MOST = float(np.array(0x7F7F0000, np.uint32).view(np.float32))


def encode(x: Floats) -> Bytes:
    bits = x.view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    quiet = (bits >> 16) | 0x40  # NaN stays NaN where rounding would carry into its sign
    return np.where(np.isnan(x), quiet, rounded).astype("<u2").view(np.uint8)


def decode(blocks: Bytes) -> Floats:
    return (blocks.view("<u2").astype(np.uint32) << 16).view(np.float32)


TYPE = KVType("bf16", 1, 2, MOST, encode, decode)
