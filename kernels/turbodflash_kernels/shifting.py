"""Keys and values that follow their tokens to other positions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from turbodflash_kernels.device import KV
from turbodflash_kernels.op import Rope

SLOTS_AT_ONCE = 512


def shift(kv: KV, start: int, stop: int, to: int, rope: Rope | None) -> None:
    """What slots start..stop-1 hold moves to slots to, to + 1, ..., as if it had been stored there.

    Values move as they are. Keys are decoded, rotated by the difference of positions and stored
    again, and so lose once more what their type loses. rope: what they were rotated by; None = keys
    know no positions, and move as they are. All on the host, in one arithmetic for every device.
    """
    from turbodflash_kernels.rope_store.ref import rotate  # the reference device, else not needed

    turn = rope and replace(rope, magnitude=1.0)  # which is in the keys already
    firsts = range(start, stop, SLOTS_AT_ONCE)
    for first in firsts if to <= start else reversed(firsts):  # never over what is yet to move
        last = min(first + SLOTS_AT_ONCE, stop)
        k, v = kv.rows(first, last)
        if turn:
            keys = kv.format_k.decode(k).astype(np.float64)
            deltas = np.full(last - first, to - start, np.int32)
            k = kv.format_k.encode(rotate(keys, deltas, turn))
        kv.put_rows(first + to - start, k, v)
