"""turbo3: 128 rotated numbers in 50 bytes, eight levels; codes as two low bits, then high bits."""

import numpy as np

from turbodflash_kernels.kv._base import Bytes
from turbodflash_kernels.kv._blocks import joined
from turbodflash_kernels.kv._turbo import pack_pairs, symmetric, turbo_type, unpack_pairs


def pack(code: Bytes) -> Bytes:
    return joined(pack_pairs(code & 3), np.packbits(code >> 2, axis=1, bitorder="little"))


def unpack(packed: Bytes) -> Bytes:
    high = np.unpackbits(packed[:, 32:], axis=1, bitorder="little")
    return unpack_pairs(packed[:, :32]) | high << 2


LEVELS = symmetric(0.021663, 0.066822, 0.118786, 0.190207)
MIDDLES = symmetric(0, 0.044243, 0.092804, 0.154496)

TYPE = turbo_type("turbo3", levels=LEVELS, middles=MIDDLES, pack=pack, unpack=unpack)
