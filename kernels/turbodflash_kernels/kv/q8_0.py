"""q8_0: 32 numbers in 34 bytes, x = scale * code, codes of -127 to 127."""

import numpy as np

from turbodflash_kernels.kv._base import F16_MOST, Bytes, Floats, KVType
from turbodflash_kernels.kv._blocks import BLOCK, half, half_at, joined, reciprocal, rounded_away


def encode(x: Floats) -> Bytes:
    scale = np.abs(x).max(axis=1) / np.float32(127)
    code = rounded_away(x * reciprocal(scale)[:, None])
    return joined(half(scale), np.nan_to_num(np.clip(code, -127, 127)).astype(np.int8))


def decode(blocks: Bytes) -> Floats:
    return half_at(blocks, 0) * blocks[:, 2:].view(np.int8).astype(np.float32)


TYPE = KVType("q8_0", BLOCK, 34, 127 * F16_MOST, encode, decode)
