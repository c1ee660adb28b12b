"""What a device stores is what the types say: the same bytes, in and out, moved and shifted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.kernels.devices import ALL_CACHE_TYPES, poisoned
from turbodflash_kernels.cases import normal
from turbodflash_kernels.device import KV, Device, open_device
from turbodflash_kernels.errors import NoKernel
from turbodflash_kernels.kv import HeadFormat, kv_types
from turbodflash_kernels.op import Rope
from turbodflash_kernels.rope_store.ref import rotate
from turbodflash_kernels.shifting import shift

HEADS, ROWS, START = 2, 37, 120  # slots on both sides of a chunk's edge
ROOM = 300
PAIRS = [(k, kv_types()[(at + 7) % 12]) for at, k in enumerate(kv_types())]
ROTATED = [(k, v) for k, v in PAIRS if {k, v} & {"q8_0", "q4_0", "q5_1", "iq4_nl"}]
STORES = [
    *((k, v, (64, 80, 192)[at % 3], False) for at, (k, v) in enumerate(PAIRS)),
    *((k, v, (64, 128, 192)[at % 3], True) for at, (k, v) in enumerate(ROTATED)),
]
every_device = pytest.mark.parametrize("device", ALL_CACHE_TYPES)

Floats = NDArray[np.float32]


def still(head_dim: int) -> Rope:
    return Rope("neox", head_dim, np.zeros(head_dim // 2, np.float32))


def stored(
    device: Device, kv: KV, heads: Floats, rope: Rope, start: int = START, finite: bool = False
) -> None:
    """heads: keys and values [n, 2, HEADS, head_dim] into slots from `start` on."""
    store = device.bind(
        "rope_store",
        **{"kv": kv, "heads": 0, "kv_heads": HEADS, "head_dim": heads.shape[-1]},
        **{"rope": rope, "finite": finite},
    )
    slots = np.arange(start, start + len(heads), dtype=np.int32)
    device.read(store(device.upload(heads.reshape(len(heads), -1)), device.upload(slots)))


def heads_of(head_dim: int, rows: int = ROWS, seed: int = 3) -> Floats:
    """Some with an outlier, some large, some small, one of zeros."""
    heads = normal(rows, 2 * HEADS * head_dim, seed).reshape(rows, 2, HEADS, head_dim)
    heads *= 10.0 ** np.linspace(-3, 2, rows, dtype=np.float32)[:, None, None, None]
    heads[:, :, :, 7] *= 12
    heads[rows // 2] = 0
    return heads


def differing(format: HeadFormat, found: NDArray[Any], expected: NDArray[Any]) -> float:
    """The share of stored numbers of which another code, one away, or another scale was chosen."""
    ours, theirs = format.type.decode(found), format.type.decode(expected)
    largest = np.abs(theirs).max(axis=-1, keepdims=True)
    assert (np.abs(ours - theirs) <= largest / 2 + 1e-30).all()
    return float((np.abs(ours - theirs) > 0.002 * largest).mean())


@pytest.mark.parametrize(("k", "v", "head_dim", "rotate"), STORES)
@every_device
def test_a_device_stores_the_bytes_of_the_types(
    device: str, k: str, v: str, head_dim: int, rotate: bool
) -> None:
    chosen, heads = poisoned(device), heads_of(head_dim)
    kv = chosen.kv(k, v, ROOM, HEADS, head_dim, head_dim, rotate)
    stored(chosen, kv, heads, still(head_dim))
    rows = kv.rows(START, START + ROWS)
    for side, (format, found) in enumerate(zip((kv.format_k, kv.format_v), rows, strict=True)):
        expected = format.encode(heads[:, side])
        if format.rotated:  # sums of another order may choose the neighbour on a boundary
            assert differing(format, found, expected) < 1e-3
        else:
            np.testing.assert_array_equal(_values(format, found), _values(format, expected))


def _values(format: HeadFormat, rows: NDArray[Any]) -> Floats:
    """What bytes mean: those of a scale of zero may be any."""
    return format.type.decode(rows)


@pytest.mark.parametrize(("k", "v"), PAIRS)
@every_device
def test_rows_come_back_as_they_were_put(device: str, k: str, v: str) -> None:
    chosen = poisoned(device)
    kv = chosen.kv(k, v, ROOM, HEADS, 96, 96)
    heads = heads_of(96)
    rows = [format.encode(heads[:, side]) for side, format in enumerate((kv.format_k, kv.format_v))]
    kv.put_rows(START, *rows)
    for found, expected in zip(kv.rows(START, START + ROWS), rows, strict=True):
        np.testing.assert_array_equal(found, expected)
    for side, found in enumerate(kv.read(START + 3, START + 9)):
        format = (kv.format_k, kv.format_v)[side]
        np.testing.assert_array_equal(found, format.decode(rows[side][3:9]))


@pytest.mark.parametrize(("k", "v"), PAIRS)
@every_device
def test_slots_move_with_all_their_bytes(device: str, k: str, v: str) -> None:
    chosen = poisoned(device)
    kv = chosen.kv(k, v, ROOM, HEADS, 64, 64)
    stored(chosen, kv, heads_of(64), still(64))
    before = kv.rows(0, START + ROWS)
    sources = [START + 2, START + 9, START + 30]
    kv.move(sources, START)
    for found, held in zip(kv.rows(START, START + 3), before, strict=True):
        np.testing.assert_array_equal(found, held[sources])


@pytest.mark.parametrize("finite", [False, True])
@pytest.mark.parametrize(("k", "v"), PAIRS)
@every_device
def test_one_bad_row_spoils_no_other_and_may_be_held_finite(
    device: str, k: str, v: str, finite: bool
) -> None:
    chosen, heads = poisoned(device), heads_of(128)
    kv, spoilt = (chosen.kv(k, v, ROOM, HEADS, 128, 128, rotate=True) for _ in range(2))
    with np.errstate(all="ignore"):
        stored(chosen, kv, heads, still(128), finite=finite)
        heads[5, :, :, ::9] = np.resize([np.nan, np.inf, -np.inf, 3.4e38, 1e6], 15)
        stored(chosen, spoilt, heads, still(128), finite=finite)
        read = zip(kv.read(START, START + ROWS), spoilt.read(START, START + ROWS), strict=True)
    others = np.arange(ROWS) != 5
    for good, bad in read:
        np.testing.assert_array_equal(good[others], bad[others])
        assert np.isfinite(bad).all() or not finite


@pytest.mark.parametrize(("k", "v"), PAIRS)
@pytest.mark.parametrize("delta", [-40, 3])
@every_device
def test_shifted_keys_are_those_of_the_other_positions(
    device: str, delta: int, k: str, v: str
) -> None:
    """They lose what the type loses a second time; keys stored there afresh lose it once."""
    chosen = open_device(device)
    rope = Rope("neox", 48, (100.0 ** -np.linspace(0, 1, 24)).astype(np.float32), magnitude=1.3)
    heads = normal(ROWS, 4 * 64, 8).reshape(ROWS, 2, HEADS, 64)
    kv, fresh = (chosen.kv(k, v, ROOM, HEADS, 64, 64, rotate=True) for _ in range(2))
    there = START + delta
    stored(chosen, kv, heads, rope)
    stored(chosen, fresh, heads, rope, there)
    shift(kv, START, START + ROWS, there, rope)
    shifted, afresh = kv.read(there, there + ROWS), fresh.read(there, there + ROWS)
    np.testing.assert_array_equal(shifted[1], afresh[1])
    exact = rotate(heads[:, 0], np.arange(there, there + ROWS, dtype=np.int32), rope)
    lost, once = (np.square(keys - exact).mean() for keys in (shifted[0], afresh[0]))
    assert lost <= 3 * once + 1e-9


@pytest.mark.parametrize(("start", "to"), [(900, 10), (10, 30), (1, 900)])
@every_device
def test_a_long_run_of_slots_shifts_without_overwriting_itself(
    device: str, start: int, to: int
) -> None:
    chosen = open_device(device)
    kv = chosen.kv("q8_0", "turbo4", 2048, HEADS, 64, 64)
    rows = [
        format.encode(normal(1100, HEADS * 64, seed).reshape(1100, HEADS, 64))
        for seed, format in enumerate((kv.format_k, kv.format_v))
    ]
    kv.put_rows(start, *rows)
    shift(kv, start, start + 1100, to, None)
    for found, expected in zip(kv.rows(to, to + 1100), rows, strict=True):
        np.testing.assert_array_equal(found, expected)


@every_device
def test_a_type_that_there_is_not_is_named(device: str) -> None:
    with pytest.raises(NoKernel, match="no cache type named 'q2_0'"):
        open_device(device).kv("f16", "q2_0", 16, 1, 64, 64)
