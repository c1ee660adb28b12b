"""Keys that follow their tokens to other positions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from turbodflash_kernels.device import KV
from turbodflash_kernels.op import Rope
from turbodflash_kernels.rope_store.ref import rotate

SLOTS_AT_ONCE = 1024


def shift_keys(kv: KV, start: int, stop: int, delta: int, rope: Rope) -> None:
    """The keys of slots start..stop-1 become those of their tokens `delta` positions later.

    They stay in their slots; values do not know positions. delta: of either sign. rope: as the keys
    were rotated by. Keys lose, once more, what their type loses. Done on the host, in the same
    arithmetic for every device.
    """
    turn = replace(rope, magnitude=1.0)  # it is in the keys already
    for first in range(start, stop, SLOTS_AT_ONCE):
        last = min(first + SLOTS_AT_ONCE, stop)
        k, v = kv.rows(first, last)
        deltas = np.full(last - first, delta, np.int32)
        keys = rotate(kv.format_k.decode(k).astype(np.float64), deltas, turn)
        kv.put_rows(first, kv.format_k.encode(keys), v)
