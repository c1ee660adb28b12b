"""The memory of recurrent layers: whatever is tried, kept, cut or saved, only its text counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.kernels.devices import PRESENT, poisoned
from turbodflash_engine.cache import Cache, RecurrentLayers, state_bytes
from turbodflash_engine.cache.recurrent import ROOM
from turbodflash_engine.errors import TurbodflashError
from turbodflash_kernels.cases import normal
from turbodflash_kernels.device import Device
from turbodflash_kernels.op import DeltaShape, RmsNorm

SHAPE = DeltaShape(key_heads=1, value_heads=2, head_dim=16, taps=3)
LAYERS, CAPACITY = 2, 1000
ROWS = normal(100, SHAPE.width, 1)
"""What each token is to both layers."""

on_every_device = pytest.mark.parametrize("name", PRESENT)
few = st.lists(st.integers(0, 99), min_size=1, max_size=6)
many = st.integers(1, 2 * ROOM + 9).flatmap(
    lambda count: st.lists(st.integers(0, 99), min_size=count, max_size=count)
)
passes = st.lists(st.one_of(few, few, many), min_size=1, max_size=3)
DEVICES: dict[str, Device] = {}


def device_of(name: str) -> Device:
    return DEVICES.setdefault(name, poisoned(name))


class Net:
    """Two delta nets over a cache, fed as a model feeds them."""

    def __init__(self, name: str) -> None:
        self.device = device = device_of(name)
        self.memory = RecurrentLayers(device, SHAPE, LAYERS)
        self.cache = Cache([self.memory], CAPACITY)
        self.cache.reader = self.feed
        self.fail_at: int | None = None
        self.fed = 0
        self._nets = [
            device.bind(
                "delta_net",
                state=state,
                taps=device.upload(normal(SHAPE.taps, SHAPE.channels, 2 + seed)),
                dt_bias=device.upload(normal(1, SHAPE.value_heads, 4 + seed)[0]),
                decay=device.upload(-np.abs(normal(1, SHAPE.value_heads, 6 + seed)[0])),
                norm=RmsNorm(device.upload(np.ones(SHAPE.head_dim, np.float32)), 1e-6),
                eps=1e-6,
            )
            for seed, state in enumerate(self.memory.states)
        ]

    def feed(
        self, tokens: Sequence[int], parents: Sequence[int] | None = None
    ) -> NDArray[np.float32]:
        """[tokens, layers * inner], the rows of both layers."""
        self.cache.expect(tokens)
        x = self.device.upload(ROWS[list(tokens)])
        more = () if parents is None else (self.device.upload(np.array(parents, np.int32)),)
        found = []
        for layer, net in enumerate(self._nets):
            if self.fail_at == layer:
                raise KeyboardInterrupt
            found.append(self.device.read(net(x, *more)).copy())
        self.fed += len(tokens)
        self.cache.advance(len(tokens))
        return np.concatenate(found, axis=1)

    def trial(self, *given: Sequence[int], keep: int | None = None) -> None:
        with self.cache.trial() as trial:
            for tokens in given:
                self.feed(tokens)
            trial.keep(sum(map(len, given)) if keep is None else keep)


def says(name: str, text: Sequence[int]) -> NDArray[np.float32]:
    """What a net that read only this text says of a token that follows."""
    net = Net(name)
    for token in text:
        net.feed([token])
    return net.feed([7])


def check(net: Net, name: str, text: Sequence[int]) -> None:
    assert net.cache.length == len(text)
    np.testing.assert_array_equal(net.feed([7]), says(name, text))


@on_every_device
@settings(deadline=None, max_examples=15)
@given(st.lists(st.tuples(passes, st.floats(0, 1)), min_size=1, max_size=4))
def test_only_what_was_kept_counts_however_much_was_tried(
    name: str, trials: list[tuple[list[list[int]], float]]
) -> None:
    net, text = Net(name), list[int]()
    for blocks, share in trials:
        tokens = [token for block in blocks for token in block]
        kept = round(share * len(tokens))
        net.trial(*blocks, keep=kept)
        text += tokens[:kept]
    check(net, name, text)


@on_every_device
@settings(deadline=None, max_examples=15)
@given(st.lists(st.one_of(few, many), min_size=1, max_size=4))
def test_rows_have_the_bits_of_single_ones_however_they_are_grouped(
    name: str, blocks: list[list[int]]
) -> None:
    net, single = Net(name), Net(name)
    for block in blocks:
        together = net.feed(block)
        np.testing.assert_array_equal(
            together, np.concatenate([single.feed([token]) for token in block])
        )


@on_every_device
@settings(deadline=None, max_examples=15)
@given(
    st.lists(st.tuples(few, st.lists(st.integers(0, 4), min_size=6, max_size=6)), max_size=5),
    st.data(),
)
def test_of_a_tree_the_kept_path_counts_and_rows_follow_their_ancestors(
    name: str, trees: list[tuple[list[int], list[int]]], data: st.DataObject
) -> None:
    net, text = Net(name), list[int]()
    for tokens, back in trees:
        parents = [max(row - 1 - back[row], min(row, 1) - 1) for row in range(len(tokens))]
        with net.cache.trial() as trial:
            rows = net.feed(tokens, parents)
            last = data.draw(st.integers(0, len(tokens) - 1))
            path = [last]
            while parents[path[0]] >= 0:
                path.insert(0, parents[path[0]])
            trial.keep_path(path)
        text += [tokens[row] for row in path]
        np.testing.assert_array_equal(rows[last], straight(name, text)[-1])
    check(net, name, text)


def straight(name: str, text: Sequence[int]) -> NDArray[np.float32]:
    return Net(name).feed(text)


@on_every_device
@settings(deadline=None, max_examples=15)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("prompt"), many),
            st.tuples(st.just("prompt"), few),
            st.tuples(st.just("say"), few),
            st.tuples(st.just("cut"), st.floats(0, 1)),
        ),
        max_size=10,
    )
)
def test_a_cache_that_was_cut_holds_the_beginning_of_its_text(
    name: str, script: list[tuple[str, Any]]
) -> None:
    net, text = Net(name), list[int]()
    for do, what in script:
        if do == "cut":
            wanted = round(what * len(text))
            reached = net.cache.reach(wanted)
            assert reached <= wanted
            net.cache.truncate(reached)
            del text[reached:]
            continue
        for block in [what] if do == "prompt" else [[token] for token in what]:
            net.trial(block)
        if do == "prompt":
            net.cache.checkpoint()
        text += what
    check(net, name, text)


@on_every_device
def test_the_end_of_a_prompt_can_be_cut_after_an_answer_and_older_ones_too(name: str) -> None:
    net = Net(name)
    first, second = list(range(70)), list(range(70, 75))
    for prompt in (first, second):
        net.trial(prompt)
        net.cache.checkpoint()
        for token in (1, 2, 3):
            net.trial([token, 9, 9], keep=1)
    assert net.cache.length == 81
    assert net.cache.reach(80) == 80  # it waits
    assert net.cache.reach(79) == 78
    assert [net.cache.reach(length) for length in (77, 73, 72, 70, 50, 38)] == [
        77,
        73,
        70,
        70,
        50,
        38,
    ]
    assert net.cache.reach(37) == 0
    net.cache.truncate(69)
    assert net.cache.reach(68) == 68
    check(net, name, first[:69])


@on_every_device
@pytest.mark.parametrize("layer", range(LAYERS + 1))
@pytest.mark.parametrize("count", [2, ROOM + 5])
@pytest.mark.parametrize("before", [[], [4], [4, 5, 6]], ids=str)
def test_a_pass_that_fails_leaves_nothing(
    name: str, before: list[int], count: int, layer: int
) -> None:
    """Wherever it fails: before, between or behind the layers."""
    net = Net(name)
    net.trial(list(range(40)))
    for token in before:
        net.trial([token, 9], keep=1)
    advance = net.cache.advance

    def broken(count: int) -> None:
        raise KeyboardInterrupt

    net.fail_at = layer
    if layer == LAYERS:
        net.cache.advance = broken  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        net.trial([1] * count)
    net.fail_at, net.cache.advance = None, advance  # type: ignore[method-assign]
    check(net, name, [*range(40), *before])


@on_every_device
def test_what_a_failed_pass_left_half_done_is_not_saved(name: str) -> None:
    net = Net(name)
    net.trial([1, 2, 3])
    net.fail_at = 1
    with pytest.raises(KeyboardInterrupt):
        net.trial([4])
    with pytest.raises(TurbodflashError, match="a pass of the model was cut short"):
        net.cache.pieces()


@on_every_device
@pytest.mark.parametrize("fails_at", [0, None])
@pytest.mark.parametrize("text", [[], [1], list(range(20)), list(range(80))], ids=len)
def test_what_is_saved_goes_on_elsewhere(name: str, text: list[int], fails_at: int | None) -> None:
    net, other = Net(name), Net(name)
    if text:
        net.trial(text)
    if fails_at is not None:
        net.fail_at = fails_at
        with pytest.raises(KeyboardInterrupt):
            net.trial([1])
    other.trial([3] * 50)
    other.cache.checkpoint()
    saved = {key: piece.read() for key, piece in net.cache.pieces().items()}
    other.cache.fill(saved, len(text))
    assert other.cache.form == net.cache.form
    assert other.cache.reach(max(len(text) - ROOM, 0)) == max(len(text) - ROOM, 0)
    check(other, name, text)


@pytest.mark.parametrize(
    ("piece", "shape"), [("0.window", (2, 2, 3)), ("0.s", (2, 1)), ("0.waiting", (2, 1, 5))]
)
def test_pieces_of_another_shape_are_refused(piece: str, shape: tuple[int, ...]) -> None:
    net = Net("reference")
    net.trial([1, 2, 3])
    saved = {key: each.read() for key, each in net.cache.pieces().items()}
    with pytest.raises(ValueError, match="instead of"):
        net.cache.fill(saved | {piece: np.zeros(shape, np.float32)}, 3)
    assert net.cache.length == 0


def test_more_rows_than_there_are_tokens_cannot_wait() -> None:
    net = Net("reference")
    net.trial([1, 2, 3])
    saved = {key: each.read() for key, each in net.cache.pieces().items()}
    with pytest.raises(ValueError, match="3 rows wait of 2 tokens"):
        net.cache.fill(saved, 2)


def test_only_what_had_to_be_undone_beyond_what_waits_is_read_again() -> None:
    net = Net("reference")
    net.trial(list(range(50)), keep=50 - ROOM)
    net.trial(list(range(20)), list(range(20)), keep=20)
    assert net.fed == 90
    net.trial(list(range(50)), keep=49 - ROOM)
    net.trial(list(range(20)), list(range(20)), keep=19)
    assert net.fed == 90 + 50 + 49 - ROOM + 40 + 19


def test_nothing_is_forgotten_from_within() -> None:
    net = Net("reference")
    assert not net.cache.can_forget
    net.feed([1, 2, 3])
    with pytest.raises(ValueError, match="cannot be taken out again"):
        net.memory.forget(0, 1, 3)


def test_it_takes_what_was_planned() -> None:
    net = Net("cpu")
    for _ in range(3):
        net.trial(list(range(40)))
        net.cache.checkpoint()
    copies = sum(
        sum(part.nbytes for part in copy if isinstance(part, np.ndarray))
        for saved in net.memory._checkpoints
        for copy in saved.states
    )
    planned = LAYERS * state_bytes(SHAPE)
    assert net.memory.nbytes + copies + net.memory.nbytes == planned  # and one for a prompt


def test_a_card_keeps_cuts_and_saves_as_others_do() -> None:
    net = Net("gpu")
    net.trial([1, 2, 3, 4], keep=2)
    with net.cache.trial() as trial:
        net.feed([5, 6, 7], [-1, 0, 0])
        trial.keep_path([0, 2])
    net.trial([8] * (ROOM + 1), keep=1)
    net.cache.checkpoint()
    net.trial([9, 9], keep=1)
    saved = {key: piece.read() for key, piece in net.cache.pieces().items()}
    net.cache.truncate(net.cache.reach(5))
    expected = says("gpu", [1, 2, 5, 7, 8])
    np.testing.assert_array_equal(net.feed([7]), expected)
    net.cache.fill(saved, 6)
    net.cache.truncate(5)
    np.testing.assert_array_equal(net.feed([7]), expected)
