"""What `rope_store` puts into a cache that one bad row must not spoil."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.devices import PRESENT, poisoned
from turbodflash_kernels.cases import normal
from turbodflash_kernels.op import RmsNorm, Rope

HEADS, HEAD_DIM, ROWS = 2, 40, 5
WIDTH = HEADS * HEAD_DIM
STILL = Rope("neox", HEAD_DIM, np.zeros(HEAD_DIM // 2, np.float32))
TURNING = Rope("neox", 32, np.linspace(0.1, 2, 16, dtype=np.float32))
BAD = [np.nan, np.inf, -np.inf, 3e38, 7e4, -7e4]


@pytest.mark.parametrize("device", PRESENT)
@pytest.mark.parametrize(("format", "most"), [("f16", 65504.0), ("f32", np.finfo("f4").max)])
def test_numbers_that_a_format_cannot_hold_are_stored_as_zero(
    format: str, most: float, device: str
) -> None:
    chosen = poisoned(device)
    kv = chosen.kv(format, format, 16, HEADS, HEAD_DIM, HEAD_DIM)
    store = chosen.bind(
        "rope_store", kv=kv, heads=0, kv_heads=HEADS, head_dim=HEAD_DIM, rope=STILL, finite=True
    )
    rows = normal(ROWS, 2 * WIDTH, 1).astype(np.float16).astype(np.float32)
    rows[1, ::7] = np.resize(BAD, len(rows[1, ::7]))
    rows[3] = most
    with np.errstate(all="ignore"):  # an infinite angle of rotation, in plain numpy
        chosen.read(store(chosen.upload(rows), chosen.upload(np.arange(ROWS, dtype=np.int32))))
        rotated = rows[:, :WIDTH].copy()
        half = HEAD_DIM // 2
        pairs = rotated.reshape(ROWS, HEADS, 2, half)
        first, second = pairs[:, :, 0].copy(), pairs[:, :, 1].copy()
        pairs[:, :, 0], pairs[:, :, 1] = first - second * 0, second + first * 0
    expected = np.concatenate([rotated, rows[:, WIDTH:]], axis=1)
    expected[~(np.abs(expected) <= most)] = 0
    k, v = kv.read(0, ROWS)
    found = np.concatenate([part.reshape(ROWS, WIDTH) for part in (k, v)], axis=1)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("device", PRESENT)
@pytest.mark.parametrize("heads", [0, 2])
def test_good_rows_are_stored_as_ever(heads: int, device: str) -> None:
    chosen = poisoned(device)
    norm = RmsNorm(chosen.upload(np.linspace(0.5, 2, HEAD_DIM, dtype=np.float32)), 1e-6)
    rows = chosen.upload(normal(ROWS, (heads + 2 * HEADS) * HEAD_DIM, 2))
    stored = []
    for finite in (False, True):
        kv = chosen.kv("f16", "f16", 16, HEADS, HEAD_DIM, HEAD_DIM)
        store = chosen.bind(
            "rope_store",
            kv=kv,
            heads=heads,
            kv_heads=HEADS,
            head_dim=HEAD_DIM,
            rope=TURNING,
            k_norm=norm,
            finite=finite,
        )
        chosen.read(store(rows, chosen.upload(np.arange(ROWS, dtype=np.int32))))
        stored.append(kv.read(0, ROWS))
    np.testing.assert_array_equal(stored[0], stored[1])
