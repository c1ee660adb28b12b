"""A row of a delta net has the same bits, however the rows before it came."""

from __future__ import annotations

import numpy as np
import pytest

from tests.interpreter import improve
from turbodflash_kernels.cases import normal
from turbodflash_kernels.device import Device, State, open_device
from turbodflash_kernels.op import Array, DeltaShape, RmsNorm

SHAPE = DeltaShape(key_heads=1, value_heads=2, head_dim=16, taps=3)
ROWS = 6

improve()


class Net:
    """A layer that has seen nothing, and the rounds of its passes."""

    def __init__(self) -> None:
        self.device: Device = open_device("gpu")
        self.counts: Array = self.device.upload(np.zeros(4, np.int32))
        self.state: State = self.device.new_state(SHAPE, self.counts, ROWS)
        upload = self.device.upload
        self.delta_net = self.device.bind(
            "delta_net",
            state=self.state,
            taps=upload(normal(SHAPE.taps, SHAPE.channels, 1)),
            dt_bias=upload(normal(1, SHAPE.value_heads, 2)[0]),
            decay=upload(-np.abs(normal(1, SHAPE.value_heads, 3)[0])),
            norm=RmsNorm(upload(1 + normal(1, SHAPE.head_dim, 4)[0]), 1e-6),
            eps=1e-6,
        )
        self.round = 0

    def __call__(
        self,
        x: np.ndarray,
        *,
        settled: int = 0,
        carried: int = 0,
        taken: int = 0,
        parents: list[int] | None = None,
        same_round: bool = False,
    ) -> np.ndarray:
        self.round += not same_round
        counts = np.array([settled, carried, taken, self.round], np.int32)
        self.device.write(self.counts, counts)
        tree = () if parents is None else (self.device.upload(np.array(parents, np.int32)),)
        return self.device.read(self.delta_net(self.device.upload(x), *tree)).copy()


@pytest.fixture(scope="module")
def x() -> np.ndarray:
    return normal(ROWS, SHAPE.width, 5)


@pytest.fixture(scope="module")
def taken(x: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """What all rows give that are taken in at once, and what is remembered of them."""
    net = Net()
    return net(x, taken=ROWS), [part.copy() for part in net.state.read()]


def test_rows_that_wait_have_the_bits_of_rows_that_are_taken_in(x, taken):
    net = Net()
    np.testing.assert_array_equal(net(x[:2], taken=1), taken[0][:2])
    np.testing.assert_array_equal(net(x[2:4], settled=1), taken[0][2:4])
    np.testing.assert_array_equal(net(x[4:5], carried=2, same_round=True), taken[0][4:5])
    np.testing.assert_array_equal(net(x[5:], settled=3, taken=1), taken[0][5:])
    for got, wanted in zip(net.state.read(), taken[1], strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_a_trial_of_which_nothing_is_kept_leaves_no_trace(x, taken):
    net = Net()
    net(x[3:])
    np.testing.assert_array_equal(net(x, taken=ROWS), taken[0])


@pytest.mark.parametrize("parents", [[-1, 0, 1, 0, 3], [-1, 0, 0, 1, 3]])
def test_a_branch_of_a_tree_has_the_bits_of_its_chain(x, parents):
    tree = Net()
    tree(x[:1])
    found = tree(x[1:], settled=1, parents=parents)
    path = [4]
    while parents[path[0]] >= 0:
        path.insert(0, parents[path[0]])
    chain = Net()
    chain(x[:1])
    np.testing.assert_array_equal(chain(x[1:][path], settled=1), found[path])
