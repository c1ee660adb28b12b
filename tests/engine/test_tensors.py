"""What a layout asks of a file's tensors, and whole numbers among them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from tests.engine.tiny_models import Made, made
from turbodflash_engine.errors import BadModel
from turbodflash_engine.layers.tensors import ANY, LOOKED_AT, Layout, Tensors
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


@dataclass
class Released(Made):
    """A tensor that notes which of its rows were let go."""

    gone: list[int] = field(default_factory=list)

    def release(self, start: int, stop: int) -> None:
        self.gone += range(start, stop)


@pytest.mark.parametrize("order", [range(100), reversed(range(100))], ids=["forth", "back"])
def test_what_was_decoded_is_let_go_soon_and_at_the_end_all(order):
    """Not at once, because what is not copied is still being looked at."""
    plain = made("experts", np.ones((300, 4), np.float32))
    watched = Released(plain.name, plain.type, plain.shape, plain.data)
    decode = tensors(watched).part("experts").decode
    for count, piece in enumerate(order, 1):
        decode(3 * piece, 3 * piece + 3)
        if count < 100:
            assert len(watched.gone) == 3 * max(count - LOOKED_AT, 0)
    assert sorted(watched.gone) == list(range(300))
