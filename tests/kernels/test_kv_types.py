"""What every cache type promises: sizes, errors, extremes, and blocks that know no other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from turbodflash_engine.options import CACHE_TYPES
from turbodflash_kernels.cases import normal
from turbodflash_kernels.errors import NoKernel
from turbodflash_kernels.kv import HeadFormat, KVType, Rotation, head_formats, kv_type, kv_types
from turbodflash_kernels.kv._base import sum_of_halves

HEAD_DIMS = (16, 64, 80, 96, 128, 192, 256, 512, 576)
BLOCK_BYTES = {
    **{"f32": (1, 4), "f16": (1, 2), "bf16": (1, 2), "q8_0": (32, 34), "q5_1": (32, 24)},
    **{"q5_0": (32, 22), "q4_1": (32, 20), "q4_0": (32, 18), "iq4_nl": (32, 18)},
    **{"turbo4": (128, 66), "turbo3": (128, 50), "turbo2": (128, 34)},
}
ERROR = {  # of normal numbers: mean square over mean square, measured on 8,000 rows by others
    **{"q8_0": 2.9e-5, "q5_1": 0.00143, "q5_0": 0.00182, "q4_1": 0.00612, "q4_0": 0.00739},
    **{"iq4_nl": 0.00619, "turbo4": 0.00915, "turbo3": 0.0337, "turbo2": 0.119},
}
QUANTISED = tuple(ERROR)
few_examples = settings(deadline=None, max_examples=40, derandomize=True)
every_type = pytest.mark.parametrize("name", kv_types())

Floats = NDArray[np.float32]


@st.composite
def blocks(draw: st.DrawFn) -> Floats:
    """A row of 128 numbers of any size and shape that a type of half precision scales can hold."""
    seed, power = draw(st.integers(0, 2**20)), draw(st.integers(-6, 4))
    row = normal(1, 128, seed)[0] * np.float32(10.0**power)
    shape = draw(st.sampled_from(["normal", "offset", "spike", "ramp", "constant", "signs"]))
    if shape == "offset":
        row += np.float32(3 * 10.0**power)
    elif shape == "spike":
        row[draw(st.integers(0, 127))] *= 30
    elif shape == "ramp":
        row = np.sort(row)
    elif shape == "constant":
        row[:] = row[0]
    elif shape == "signs":
        row = np.sign(row) * np.float32(10.0**power)
    return row


def decoded(type: KVType, row: Floats) -> Floats:
    return type.decode(type.encode(row))


def test_the_shelf_is_what_may_be_asked_for() -> None:
    assert sorted(CACHE_TYPES) == list(kv_types())


def test_an_unknown_type_lists_those_there_are() -> None:
    with pytest.raises(NoKernel, match="no cache type named 'q3_0'") as caught:
        kv_type("q3_0")
    assert "bf16, f16, f32, iq4_nl" in caught.value.hint


@every_type
def test_a_block_has_the_bytes_of_the_sheet(name: str) -> None:
    type = kv_type(name)
    assert (type.name, type.block, type.block_bytes) == (name, *BLOCK_BYTES[name])
    for head_dim in HEAD_DIMS:
        assert type.padded(head_dim) == -(-head_dim // type.block) * type.block
        heads = normal(6, head_dim, 1).reshape(3, 2, head_dim)
        heads = HeadFormat.of_values(type, head_dim).encode(heads)
        assert heads.shape == (3, 2, type.row_bytes(head_dim))
        assert heads.dtype == np.uint8


@pytest.mark.parametrize("name", [name for name in kv_types() if "turbo" not in name])
@few_examples
@given(row=blocks())
def test_what_was_stored_once_is_stored_again_as_it_is(name: str, row: Floats) -> None:
    """Encoding decoded numbers moves them by no more than the rounding of a scale."""
    type = kv_type(name)
    once = decoded(type, row)
    moved = np.abs(decoded(type, once) - once)
    if not type.quantised:
        assert not moved.any()
        return
    allowed = 0.1 if name == "iq4_nl" else 0.003  # whose second scale is not that of its codes
    spread = np.abs(once).reshape(-1, type.block).max(axis=1, keepdims=True)
    assert (moved.reshape(-1, type.block) <= allowed * spread + 1e-7).all()


@pytest.mark.parametrize("name", ["turbo4", "turbo3", "turbo2"])
@few_examples
@given(seed=st.integers(0, 2**20), power=st.integers(-4, 3))
def test_turbo_rows_stored_again_keep_their_length(name: str, seed: int, power: int) -> None:
    """Whatever the levels make of a direction, the length of a row stays, up to its half float."""
    row = normal(1, 128, seed)[0] * np.float32(10.0**power)
    once = decoded(kv_type(name), row)
    twice = decoded(kv_type(name), once)
    assert np.linalg.norm(once) == pytest.approx(np.linalg.norm(row), rel=1e-3)
    assert np.linalg.norm(twice) == pytest.approx(np.linalg.norm(row), rel=2e-3)
    assert np.linalg.norm(twice - once) <= 0.2 * np.linalg.norm(row)


@every_type
@few_examples
@given(row=blocks(), other=blocks())
def test_a_block_knows_no_other(name: str, row: Floats, other: Floats) -> None:
    type = kv_type(name)
    together = decoded(type, np.concatenate([other, row, other]))
    np.testing.assert_array_equal(together[128:256], decoded(type, row))


@every_type
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 3e38])
def test_a_bad_number_spoils_its_block_alone(name: str, bad: float) -> None:
    type = kv_type(name)
    rows = normal(3, type.block, 2)
    spoilt = rows.copy()
    spoilt[1, 0] = bad
    np.testing.assert_array_equal(
        decoded(type, spoilt.reshape(-1)).reshape(rows.shape)[[0, 2]], decoded(type, rows)[[0, 2]]
    )


@every_type
def test_numbers_up_to_the_most_of_a_type_are_stored_finite(name: str) -> None:
    type = kv_type(name)
    most = np.float32(type.most)
    most = most if most <= type.most else np.nextafter(most, np.float32(0))
    rows = np.resize([most, -most, most, 0, 1], (4, 128)).astype(np.float32)
    rows[1] = most
    rows[2, 1:] = 0
    assert np.isfinite(decoded(type, rows)).all()


@every_type
@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_zeros_stay_zeros(name: str, zero: float) -> None:
    assert not decoded(kv_type(name), np.full(256, zero, np.float32)).any()


@pytest.mark.parametrize("name", QUANTISED)
def test_normal_numbers_lose_what_the_type_predicts(name: str) -> None:
    x = normal(400, 128, 5)
    lost = np.square(decoded(kv_type(name), x) - x).mean() / np.square(x).mean()
    assert lost == pytest.approx(ERROR[name], rel=0.08)


@pytest.mark.parametrize("name", ["q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl", "q8_0"])
def test_rotation_shares_out_what_a_few_channels_would_cost_all(name: str) -> None:
    x = normal(300, 128, 6)
    x[:, [3, 40, 77, 100]] *= 15
    lost = [
        np.square(format.decode(format.encode(x)) - x).mean()
        for format in (HeadFormat.of_keys(kv_type(name), 128, rotate) for rotate in (False, True))
    ]
    assert lost[1] < 0.7 * lost[0]


@few_examples
@given(seed=st.integers(0, 2**20), size=st.sampled_from([64, 128, 192, 256, 512, 576]))
def test_rotations_keep_products_and_come_back(seed: int, size: int) -> None:
    a, b = normal(2, size, seed).astype(np.float64)
    for name in ("q8_0", "turbo4"):
        for format in head_formats(name, name, size, size, rotate=True):
            stored = format.turned(a), format.turned(b)
            assert np.dot(*stored) == pytest.approx(np.dot(a, b), abs=1e-9)
            np.testing.assert_allclose(format.back(stored[0]), a, atol=1e-6)


@pytest.mark.parametrize(
    ("size", "keys", "values"),
    [(64, 64, 64), (128, 128, 64), (192, 64, 64), (256, 256, 64), (512, 512, 64), (576, 64, 64)],
)
def test_keys_are_rotated_in_the_largest_blocks_and_values_in_the_smallest(
    size: int, keys: int, values: int
) -> None:
    k, v = head_formats("q8_0", "q4_0", size, size, rotate=True)
    assert (k.rotation, v.rotation) == (Rotation("hadamard", keys), Rotation("hadamard", values))


@every_type
def test_a_rotation_is_never_put_on_another_nor_on_exact_types(name: str) -> None:
    type = kv_type(name)
    found = HeadFormat.of_keys(type, 128, rotate=True).rotation.kind
    own = "turbo" if name.startswith("turbo") else "none"
    assert found == ("hadamard" if type.quantised and own == "none" else own)


def test_heads_that_cannot_be_rotated_are_refused() -> None:
    with pytest.raises(NoKernel, match="heads of 80 numbers cannot be rotated for q4_1"):
        head_formats("q4_1", "f16", 80, 80, rotate=True)


def test_a_butterfly_is_the_matrix() -> None:
    x = normal(5, 64, 7).astype(np.float64)
    matrix = np.array([[1.0]])
    while len(matrix) < 64:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    np.testing.assert_allclose(Rotation("hadamard", 64).forward(x), x @ matrix / 8, atol=1e-12)


def test_halves_are_added_in_one_order() -> None:
    x = normal(1, 8, 3)[0]
    expected = ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]))
    assert sum_of_halves(x) == expected
