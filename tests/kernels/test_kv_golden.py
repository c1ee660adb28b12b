"""Cache types byte for byte as recorded from the reference implementation of each."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.golden_files import GOLDEN
from turbodflash_kernels.kv import HeadFormat, head_formats, kv_type

PLAIN = ("q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
TURBO = ("turbo4", "turbo3", "turbo2")
SIZES = (64, 192, 256)
OVERFLOW = "huge_overflow"  # stored as infinity there; held at the largest norm here
EVERY_FOURTH = slice(None, None, 4)  # rows whose decoded numbers were recorded
PAIRS = (
    *[(name, name) for name in ("f32", "q8_0", *TURBO)],
    *[("turbo4", "q8_0"), ("q8_0", "turbo4"), ("q8_0", "turbo2"), ("turbo3", "q4_0")],
    ("iq4_nl", "turbo3"),
)

Arrays = Mapping[str, NDArray[np.float32]]


@cache
def golden(name: str) -> Arrays:
    with np.load(GOLDEN / "kv" / f"{name}.npz") as arrays:
        return dict(arrays)


def format_of(name: str, head_dim: int = 128) -> HeadFormat:
    return HeadFormat.of_keys(kv_type(name), head_dim)


def near_boundary(name: str) -> NDArray[np.bool_]:
    """Numbers [64, 128] where another order of a sum may choose the neighbouring code."""
    packed = golden("codecs")[f"{name}_near_boundary"].view(np.uint8)
    return np.unpackbits(packed, axis=1, bitorder="little").astype(bool)


def usable(name: str) -> NDArray[np.bool_]:
    """Rows [64] without overflow."""
    return golden("codecs")["row_kind"] != OVERFLOW


@pytest.mark.parametrize("name", [*PLAIN, *TURBO])
def test_rows_have_the_recorded_bytes(name: str) -> None:
    recorded = golden("codecs")[f"{name}_bytes"]
    ours = format_of(name).encode(golden("codecs")["x"])
    sure = usable(name) & ~near_boundary(name).any(axis=1)
    assert sure.sum() > 50
    if name == "iq4_nl":  # the codes of a block without a scale are nobody's business
        blocks = ours.reshape(64, 4, 18), recorded.reshape(64, 4, 18)
        specified = ~golden("codecs")["iq4_nl_unspecified_block"].astype(bool) & sure[:, None]
        np.testing.assert_array_equal(blocks[0][specified], blocks[1][specified])
        return
    np.testing.assert_array_equal(ours[sure], recorded[sure])


@pytest.mark.parametrize("name", TURBO)
def test_codes_near_a_boundary_go_to_a_neighbour_at_most(name: str) -> None:
    type, near = kv_type(name), near_boundary(name)
    unsure = usable(name) & near.any(axis=1)
    recorded = type.decode(golden("codecs")[f"{name}_bytes"][unsure].view(np.uint8))
    ours = type.decode(format_of(name).encode(golden("codecs")["x"][unsure]))
    levels = np.unique(type.decode(_one_norm(type.block_bytes)))
    step = np.diff(levels).max() * np.abs(recorded).max(axis=1, keepdims=True) / levels.max()
    assert (np.abs(ours - recorded) <= np.where(near[unsure], 1.01 * step, 1e-3 * step)).all()


def _one_norm(block_bytes: int) -> NDArray[np.uint8]:
    """Blocks of norm 1 that hold every code."""
    rows = np.tile(np.arange(256, dtype=np.uint8)[:, None], (1, block_bytes))
    rows[:, :2] = np.array([1], "<f2").view(np.uint8)
    return rows


@pytest.mark.parametrize("name", [*PLAIN, *TURBO])
def test_recorded_bytes_have_the_recorded_numbers(name: str) -> None:
    rows = np.flatnonzero(usable(name)[EVERY_FOURTH])
    stored = golden("codecs")[f"{name}_bytes"][EVERY_FOURTH][rows].view(np.uint8)
    expected = golden("codecs")[f"{name}_dequant"][rows]
    found = format_of(name).decode(stored)
    allowed = 1e-6 * np.abs(expected).max(axis=1, keepdims=True) if name in TURBO else 0
    assert (np.abs(found - expected) <= allowed).all()


@pytest.mark.parametrize("name", TURBO)
def test_stored_numbers_are_the_recorded_ones(name: str) -> None:
    rows = np.flatnonzero(usable(name)[EVERY_FOURTH])
    stored = golden("codecs")[f"{name}_bytes"][EVERY_FOURTH][rows].view(np.uint8)
    expected = golden("codecs")[f"{name}_dequant_rotated"][rows]
    np.testing.assert_array_equal(kv_type(name).decode(stored), expected)


@pytest.mark.parametrize("name", [*PLAIN, *TURBO])
def test_an_overflow_is_held_where_the_type_says_so(name: str) -> None:
    row = golden("codecs")["x"][golden("codecs")["row_kind"] == OVERFLOW]
    with np.errstate(all="ignore"):
        found = format_of(name).decode(format_of(name).encode(row))
    assert np.isfinite(found).all() == (np.abs(row).max() <= kv_type(name).most)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", TURBO)
def test_heads_are_filled_up_and_cut_into_groups_as_recorded(name: str, size: int) -> None:
    """By the encoder of whole blocks, which knows nothing of a head that fills one half."""
    recorded, format = golden("heads"), format_of(name, size)
    stored = recorded[f"bytes_{name}_{size}"]
    np.testing.assert_array_equal(format.type.encode(format.turned(recorded[f"x_{size}"])), stored)
    expected = recorded[f"dequant_{name}_{size}"]
    np.testing.assert_allclose(format.decode(stored.view(np.uint8)), expected, atol=2e-6)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", TURBO)
def test_a_cache_writes_the_recorded_blocks_but_better_ones_where_a_head_fills_half(
    name: str, size: int
) -> None:
    """With a quarter of the recorded error of the last 64 numbers, or less; of turbo2, half."""
    recorded, format = golden("heads"), format_of(name, size)
    x, theirs = recorded[f"x_{size}"], recorded[f"bytes_{name}_{size}"].view(np.uint8)
    ours = format.encode(x)
    alike = size // 128 * format.type.block_bytes
    np.testing.assert_array_equal(ours[..., :alike], theirs[..., :alike])
    if format.half_filled:
        lost = [np.square(format.decode(rows) - x)[..., -64:].mean() for rows in (ours, theirs)]
        assert lost[0] <= lost[1] * (0.5 if name == "turbo2" else 0.25)


@pytest.mark.parametrize(("k", "v"), PAIRS)
def test_attention_over_stored_heads_is_the_recorded_one(k: str, v: str) -> None:
    """Queries are turned like keys, sums are turned back; two query heads share a key head."""
    recorded = golden("attention")
    format_k, format_v = head_formats(k, v, 128, 128)
    keys = format_k.type.decode(format_k.encode(recorded["k"])).repeat(2, axis=0)
    values = format_v.type.decode(format_v.encode(recorded["v"])).repeat(2, axis=0)
    q = format_k.turned(recorded["q"].astype(np.float64))
    scores = q @ keys.swapaxes(1, 2) / np.sqrt(128)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    found = format_v.back(weights / weights.sum(axis=-1, keepdims=True) @ values)
    flips = (k, v) == ("turbo2", "turbo2")  # one code of 10,240 keys lies on a boundary
    np.testing.assert_allclose(found, recorded[f"out_{k}_{v}"], atol=2e-4 if flips else 1e-4)
