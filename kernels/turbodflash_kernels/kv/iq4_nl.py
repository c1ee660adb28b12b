"""iq4_nl: 32 numbers in 18 bytes, x = scale * LEVELS[code]."""

import numpy as np

from turbodflash_kernels.kv._base import F16_MOST, Bytes, Floats, KVType
from turbodflash_kernels.kv._blocks import (
    BLOCK,
    extreme,
    half,
    half_at,
    joined,
    nibbles,
    nibbles_at,
    reciprocal,
)

LEVELS = np.array(
    (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113), np.float32
)
MIDDLES = (LEVELS[1:] + LEVELS[:-1]) / 2


def encode(x: Floats) -> Bytes:
    """Codes by a first scale; then the scale that leaves the least error, large numbers first."""
    first = extreme(x) / np.float32(-127)
    code = np.searchsorted(MIDDLES, x * reciprocal(first)[:, None], side="right")
    level = LEVELS[code]
    weighted = x * x * level
    products, squares = _in_order(weighted * x), _in_order(weighted * level)
    scale = np.where(squares > 0, products / np.where(squares > 0, squares, 1), 0)
    return joined(half(scale.astype(np.float32)), nibbles(code.astype(np.uint8)))


def decode(blocks: Bytes) -> Floats:
    return half_at(blocks, 0) * LEVELS[nibbles_at(blocks, 2)]


def _in_order(x: Floats) -> Floats:
    """Sums of rows [n, 32], number after number."""
    return np.add.accumulate(x, axis=1)[:, -1]


# the second scale is up to 1.2 times the first
TYPE = KVType("iq4_nl", BLOCK, 18, 100 * F16_MOST, encode, decode)
