"""A pass over a tree: every row has the bits of its path alone, and one path can be kept."""

from __future__ import annotations

from functools import cache, lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.engine.tiny_models import all_rows, golden, tiny
from tests.kernels.devices import poisoned
from turbodflash_engine import plugins
from turbodflash_engine.errors import BadUsage
from turbodflash_engine.options import MOST_TREE, SpecOptions
from turbodflash_kernels.attend.launch import MOST_TREE_ROWS

Floats = NDArray[np.float32]
AROUND_A_CHUNK = (1, 117, 124, 127, 128)  # attention cuts keys at every 128th position

trees = st.lists(st.integers(0, 10**6), max_size=15).map(
    lambda draws: (-1, *(draw % row for row, draw in enumerate(draws, 1)))
)
"""The parents of random trees of 1 to 16 rows."""

on_everything = pytest.mark.parametrize(
    ("name", "device", "kv"),
    [
        (name, device, kv)
        for name in plugins.names("models")
        for device, kv in (("reference", "f32"), ("cpu", "f32"), ("cpu", "f16"))
    ],
)
few = settings(max_examples=12, deadline=None)  # each is several passes through a model


class Subject:
    """A model that can be put back to the first tokens of a text."""

    def __init__(self, name: str, device: str, kv: str, start: int) -> None:
        self.device = opened(device)
        self.model = tiny(name, self.device, kv)
        self.text = [int(token) for token in golden(name)["long_tokens"]]
        self.start = start
        self.model(self.text[:start])
        self.model.cache.checkpoint()

    def restart(self) -> None:
        """The first tokens of the text are in the cache; what was there after them is not."""
        reached = self.model.cache.reach(self.start)
        self.model.cache.truncate(reached)
        if self.start > reached:
            self.model(self.text[reached : self.start])

    def rows(self, tokens: list[int], parents: tuple[int, ...] | None = None) -> Floats:
        return all_rows(self.device, self.model, tokens, parents)


opened = cache(poisoned)
subject = lru_cache(maxsize=len(AROUND_A_CHUNK))(Subject)


def path_to(row: int, parents: tuple[int, ...]) -> list[int]:
    """Rows from the root down to this one."""
    return [] if row < 0 else [*path_to(parents[row], parents), row]


@few
@given(parents=trees, start=st.sampled_from(AROUND_A_CHUNK))
@on_everything
def test_a_row_has_the_bits_of_its_path_alone(
    name: str, device: str, kv: str, parents: tuple[int, ...], start: int
) -> None:
    tried = subject(name, device, kv, start)
    tree = tried.text[-len(parents) :]
    tried.restart()
    with tried.model.cache.trial():
        together = tried.rows(tree, parents)
    for leaf in set(range(len(tree))) - set(parents):
        path = path_to(leaf, parents)
        with tried.model.cache.trial():
            alone = tried.rows([tree[row] for row in path])
        np.testing.assert_array_equal(together[path], alone)


@few
@given(parents=trees, start=st.sampled_from(AROUND_A_CHUNK), choice=st.integers(0, 15))
@on_everything
def test_a_kept_path_is_as_if_it_had_been_fed(
    name: str, device: str, kv: str, parents: tuple[int, ...], start: int, choice: int
) -> None:
    tried = subject(name, device, kv, start)
    tree, following = tried.text[-len(parents) :], tried.text[:3]
    path = path_to(choice % len(tree), parents)
    tried.restart()
    with tried.model.cache.trial() as trial:
        tried.model(tree, parents=parents)
        trial.keep_path(path)
    assert tried.model.cache.length == start + len(path)
    kept = tried.rows(following)
    tried.restart()
    tried.model([tree[row] for row in path])
    np.testing.assert_array_equal(kept, tried.rows(following))


@on_everything
def test_logits_of_some_rows_are_those_of_all(name: str, device: str, kv: str) -> None:
    tried = subject(name, device, kv, 126)
    model, tree, parents = tried.model, tried.text[-6:], (-1, 0, 0, 1, 2, 2)
    tried.restart()
    with model.cache.trial():
        everything = model(tree, 6, parents=parents).logits.copy()
    for count in (0, 1, 4):
        with model.cache.trial():
            some = model(tree, count, parents=parents).logits
            np.testing.assert_array_equal(some, everything[6 - count :])


@pytest.mark.parametrize(
    ("parents", "message"),
    [
        ([0, 0, 0], "row 0 of a tree cannot have row 0 as its parent"),
        ([-1, 0, -1], "row 2 of a tree cannot have row -1"),
        ([-1, 1, 0], "row 1 of a tree cannot have row 1"),
        ([-1, 0], "2 parents do not make a tree of 3 tokens"),
        ([-1, 0, 0, 0], "4 parents do not make a tree of 3 tokens"),
    ],
    ids=str,
)
def test_what_is_no_tree_is_refused(parents: list[int], message: str) -> None:
    tried = subject("llama", "reference", "f32", 5)
    tried.restart()
    with pytest.raises(ValueError, match=message):
        tried.model(tried.text[:3], parents=parents)
    assert tried.model.cache.length == 5


def test_a_tree_that_no_device_verifies_is_refused_at_the_door() -> None:
    assert MOST_TREE == MOST_TREE_ROWS - 1  # beside the root
    assert SpecOptions(tree=MOST_TREE).tree == MOST_TREE
    with pytest.raises(BadUsage, match="a tree of 32 nodes is over the 31"):
        SpecOptions(tree=MOST_TREE + 1)
