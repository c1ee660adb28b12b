"""What a layout asks of a file's tensors, and whole numbers among them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.engine.tiny_models import Made, made
from turbodflash_engine.errors import BadModel
from turbodflash_engine.layers.tensors import ANY, Layout, Tensors
from turbodflash_engine.quant import weight_type

TOKENS = np.array([3, 1, 2**40], np.int64)


def ids(name: str, values: np.ndarray) -> Made:
    type = {8: "I64", 4: "I32"}[values.itemsize]
    return Made(name, type, values.shape[::-1], np.atleast_2d(values).view(np.uint8))


def tensors(*infos: Made) -> Tensors:
    return Tensors(
        {info.name: info for info in infos}, "some.gguf", lambda i: weight_type(i.type, i.name)
    )


@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_whole_numbers_are_read_as_they_are(dtype):
    values = np.array([3, 1, 2**30], dtype)
    held = tensors(ids("d2t", values))
    held.check(Layout(ids={"d2t": (ANY,)}))
    np.testing.assert_array_equal(held.ids("d2t"), values)
    assert held.ids("d2t").dtype == np.int64


def test_whole_numbers_are_no_weights():
    held = tensors(ids("d2t", TOKENS), made("norm", np.ones(4, np.float32)))
    assert held.weight_bytes(lambda format: 4.0) == 16
    with pytest.raises(BadModel, match="I64"):
        held.check(Layout({"d2t": (3,), "norm": (4,)}))
    with pytest.raises(BadModel, match=r"'norm' is of type F32, expected whole numbers"):
        held.check(Layout(ids={"d2t": (3,), "norm": (4,)}))


@pytest.mark.parametrize(("wanted", "fits"), [((4, ANY), True), ((5, ANY), False), ((ANY,), False)])
def test_a_size_may_be_anything_but_not_the_number_of_dimensions(wanted, fits):
    held = tensors(made("head", np.ones((7, 4), np.float32)))
    if fits:
        held.check(Layout({"head": wanted}))
        return
    with pytest.raises(BadModel, match=r"has the shape \[4, 7\], expected \["):
        held.check(Layout({"head": wanted}))
