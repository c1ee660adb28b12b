"""f32: numbers as they are."""

import numpy as np

from turbodflash_kernels.kv._base import Bytes, Floats, KVType


def encode(x: Floats) -> Bytes:
    return x.astype("<f4").view(np.uint8)


def decode(blocks: Bytes) -> Floats:
    return blocks.view("<f4").astype(np.float32)


TYPE = KVType("f32", 1, 4, float(np.finfo(np.float32).max), encode, decode)
