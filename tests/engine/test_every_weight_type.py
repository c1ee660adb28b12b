"""Every weight type that has a file decodes as the format defines it, bit for bit."""

from __future__ import annotations

import gguf as oracle
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.golden_files import golden_models, unpacked
from turbodflash_engine import plugins
from turbodflash_engine.errors import BadModel
from turbodflash_engine.gguf import open_gguf
from turbodflash_engine.gguf.ggml_types import GGML_TYPES
from turbodflash_engine.quant import weight_type
from turbodflash_kernels.planar import dequantize

NAMES = plugins.names("quant")
ALL = {kind.name for kind in oracle.quants._type_traits} | {"F32", "F16"}
GROWTH = {"IQ1_S": 2.12, "IQ1_M": 2.04, "TQ1_0": 1.38, "TQ2_0": 1.13, "NVFP4": 1.12}
GROWTH |= {"IQ2_XXS": 1.61, "IQ2_XS": 1.55, "IQ2_S": 1.4, "IQ3_XXS": 1.41, "IQ3_S": 1.26}
"""Of the planar form over the file, where a code of a weight costs more than its part of a grid."""


def random_rows(kind, rows, blocks):
    """uint8 [rows, blocks * block_bytes]: any bytes at all, so scales may be infinite or NaN."""
    rng = np.random.default_rng(kind.type_id)
    return rng.integers(0, 256, (rows, blocks * kind.block_bytes), dtype=np.uint8)


def weights(planar):
    with np.errstate(all="ignore"):
        return dequantize(planar)


def as_defined(raw, type_id):
    with np.errstate(all="ignore"):
        return oracle.quants.dequantize(raw, oracle.GGMLQuantizationType(type_id))


def assert_same_bits(found, expected, what=""):
    """Equal to the last bit, signs of zeros included; NaN where NaN is expected."""
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(found), ~numbers, what)
    np.testing.assert_array_equal(
        found[numbers].view(np.uint32), expected[numbers].view(np.uint32), what
    )


def test_all_types_are_there():
    assert {name.upper() for name in NAMES} == ALL


@pytest.mark.parametrize("name", NAMES)
def test_a_type_is_called_and_sized_as_in_the_format(name):
    kind = plugins.find("quant", name)
    assert kind.name.lower() == name
    assert tuple(GGML_TYPES[kind.type_id]) == (kind.name, kind.block, kind.block_bytes)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("rows", "blocks"), [(1, 1), (1, 9), (7, 4), (64, 3)])
def test_random_blocks_decode_as_the_gguf_package_does(name, rows, blocks):
    kind = plugins.find("quant", name)
    raw = random_rows(kind, rows, blocks)
    planar = kind.decode(raw)
    assert planar.codes.shape == (rows, blocks * kind.block)
    assert_same_bits(weights(planar), as_defined(raw, kind.type_id))


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(NAMES), data=st.data())
def test_extreme_blocks_decode_as_the_gguf_package_does(name, data):
    """Runs of one byte: infinite, subnormal and negative scales, the ends of every table."""
    kind = plugins.find("quant", name)
    length = 2 * kind.block_bytes
    runs = st.tuples(st.sampled_from([0, 1, 0x7B, 0x7C, 0x7F, 0x80, 0xFF]), st.integers(1, 9))
    drawn = data.draw(st.lists(runs, min_size=1, max_size=12))
    pattern = np.concatenate([np.full(count, byte, np.uint8) for byte, count in drawn])
    raw = np.resize(pattern, (1, length))
    assert_same_bits(weights(kind.decode(raw)), as_defined(raw, kind.type_id))


@pytest.mark.parametrize("name", NAMES)
def test_planar_parts_have_the_shapes_and_types_of_their_format(name):
    kind = plugins.find("quant", name)
    fmt = kind.format
    planar = kind.decode(random_rows(kind, 3, 2))
    cols = 2 * kind.block
    if fmt.dense:
        dtype = {"f32": "float32", "f16": "float16", "bf16": "uint16"}[fmt.dense]
        assert planar.codes.dtype == dtype
        assert planar.scale is planar.min is planar.super_scale is planar.super_min is None
        return
    assert planar.codes.dtype == np.uint8
    assert planar.codes.max() < 1 << fmt.bits
    factor = np.int8 if fmt.two_level or fmt.powers else np.float16
    _check(planar.scale, True, factor, (3, cols // fmt.block))
    _check(planar.min, fmt.affine, factor, (3, cols // fmt.block))
    _check(planar.super_scale, fmt.two_level, np.float16, (3, cols // 256))
    _check(planar.super_min, fmt.two_level and fmt.affine, np.float16, (3, cols // 256))


def _check(array, present, dtype, shape):
    assert (array is not None) == present
    assert array is None or (array.dtype, array.shape) == (dtype, shape)


@pytest.mark.parametrize("name", NAMES)
def test_rows_decode_the_same_alone_and_together(name):
    kind = plugins.find("quant", name)
    raw = random_rows(kind, 5, 2)
    alone = [weights(kind.decode(raw[row : row + 1])) for row in range(5)]
    assert_same_bits(weights(kind.decode(raw)), np.concatenate(alone))


@pytest.mark.parametrize("name", NAMES)
def test_decoding_leaves_the_file_alone(name):
    kind = plugins.find("quant", name)
    raw = random_rows(kind, 2, 2)
    before = raw.copy()
    raw.flags.writeable = False
    kind.decode(raw)
    np.testing.assert_array_equal(raw, before)


@pytest.mark.parametrize("name", NAMES)
def test_planar_costs_little_more_than_the_file(name):
    kind = plugins.find("quant", name)
    growth = kind.format.bytes_per_weight() / (kind.block_bytes / kind.block)
    assert growth <= GROWTH.get(kind.name, 1.06)


@pytest.mark.parametrize("packed", golden_models(), ids=lambda path: path.name)
def test_every_tensor_of_a_model_decodes_as_the_gguf_package_does(packed, tmp_path):
    with open_gguf(unpacked(packed, tmp_path)) as file:
        for tensor in file.tensors.values():
            if tensor.type.startswith("I") and tensor.type[1:].isdigit():
                continue  # whole numbers: tables, not weights
            planar = weight_type(tensor.type, tensor.name).decode(tensor.data)
            expected = as_defined(tensor.data, tensor.type_id)
            assert_same_bits(weights(planar), expected, tensor.name)


def test_a_type_that_is_lacking_names_the_tensor_and_what_works():
    with pytest.raises(BadModel) as error:
        weight_type("Q1_0", "blk.0.ffn_up.weight")
    assert str(error.value) == (
        "tensor 'blk.0.ffn_up.weight' uses quantization Q1_0, which this version cannot read"
    )
    assert all(name in error.value.hint for name in ALL)
