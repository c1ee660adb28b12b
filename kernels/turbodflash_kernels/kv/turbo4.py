"""turbo4: 128 rotated numbers in 66 bytes, sixteen levels; a byte holds two neighbours."""

import numpy as np

from turbodflash_kernels.kv._base import Bytes
from turbodflash_kernels.kv._turbo import symmetric, turbo_type


def pack(code: Bytes) -> Bytes:
    return code[:, ::2] | code[:, 1::2] << 4


def unpack(packed: Bytes) -> Bytes:
    return np.stack([packed & 0xF, packed >> 4], axis=2).reshape(len(packed), -1)


LEVELS = symmetric(0.011349, 0.034299, 0.058050, 0.083292, 0.111036, 0.143016, 0.182877, 0.241529)
MIDDLES = symmetric(0, 0.022824, 0.046174, 0.070671, 0.097164, 0.127026, 0.162947, 0.212203)

TYPE = turbo_type("turbo4", levels=LEVELS, middles=MIDDLES, pack=pack, unpack=unpack)
