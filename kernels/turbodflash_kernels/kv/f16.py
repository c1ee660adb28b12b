"""f16: half precision, rounded to even."""

import numpy as np

from turbodflash_kernels.kv._base import F16_MOST, Bytes, Floats, KVType


def encode(x: Floats) -> Bytes:
    return x.astype("<f2").view(np.uint8)


def decode(blocks: Bytes) -> Floats:
    return blocks.view("<f2").astype(np.float32)


TYPE = KVType("f16", 1, 2, F16_MOST, encode, decode)
