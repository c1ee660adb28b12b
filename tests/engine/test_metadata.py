"""Metadata is read with types, and what nobody reads is known."""

from __future__ import annotations

import numpy as np
import pytest

from turbodflash_engine.errors import BadModel
from turbodflash_engine.metadata import Metadata, describe

VALUES = {
    "general.architecture": "llama",
    "llama.block_count": 4,
    "llama.eps": 1e-5,
    "llama.tied": True,
    "llama.heads": np.array([4, 4, 8, 8], np.int32),
    "llama.window": np.array([True, False, True, True]),
    "llama.factors": np.array([1.5, 2.0], np.float32),
    "llama.empty": np.array([], np.float32),
    "tokenizer.tokens": ["a", "b"],
}


@pytest.fixture
def meta():
    return Metadata(VALUES, "x.gguf")


@pytest.fixture
def llama(meta):
    return meta.for_architecture()


@pytest.mark.parametrize(
    ("key", "kind", "value"),
    [
        ("block_count", int, 4),
        ("block_count", float, 4.0),
        ("eps", float, 1e-5),
        ("tied", bool, True),
    ],
)
def test_a_value_has_the_type_that_was_asked_for(llama, key, kind, value):
    found = llama.need(key, kind)
    assert (found, type(found)) == (value, kind)
    found = llama.get(key, kind())
    assert (found, type(found)) == (value, kind)


@pytest.mark.parametrize(
    ("key", "kind", "sentence"),
    [
        ("eps", int, "'llama.eps' is 1e-05, expected a whole number"),
        ("tied", int, "'llama.tied' is true, expected a whole number"),
        ("tied", float, "'llama.tied' is true, expected a number"),
        ("block_count", bool, "'llama.block_count' is 4, expected true or false"),
        ("block_count", str, "'llama.block_count' is 4, expected text"),
        ("heads", int, "'llama.heads' is a list of 4 values (int32), expected a whole number"),
    ],
)
def test_the_wrong_type_is_a_sentence(llama, key, kind, sentence):
    with pytest.raises(BadModel) as error:
        llama.need(key, kind)
    assert str(error.value) == f"'x.gguf': metadata key {sentence}"
    with pytest.raises(BadModel):
        llama.get(key, kind())


def test_a_missing_key_is_named_in_full(llama):
    with pytest.raises(BadModel, match=r"'x.gguf' has no metadata key 'llama.rope'"):
        llama.need("rope", float)
    with pytest.raises(BadModel, match=r"no metadata key 'llama.rope'"):
        llama.need_list("rope", float)
    with pytest.raises(BadModel, match=r"no metadata key 'llama.rope'"):
        llama.need_per_layer("rope", float, 4)


def test_a_missing_key_has_the_default(llama):
    assert llama.get("rope", 10_000.0) == 10_000.0
    assert llama.get("rope", None) is None
    assert llama.get("rope", None, int) is None
    assert llama.get("rope", [1, 2]) == [1, 2]
    assert llama.get_per_layer("rope", 7, 3) == [7, 7, 7]


def test_without_a_default_the_kind_is_still_checked(llama):
    assert llama.get("block_count", None, int) == 4
    with pytest.raises(BadModel, match="expected text"):
        llama.get("block_count", None, str)


@pytest.mark.parametrize(
    ("key", "kind", "values"),
    [
        ("heads", int, [4, 4, 8, 8]),
        ("heads", float, [4.0, 4.0, 8.0, 8.0]),
        ("window", bool, [True, False, True, True]),
        ("window", int, [1, 0, 1, 1]),
        ("factors", float, [1.5, 2.0]),
        ("empty", int, []),
    ],
)
def test_a_list_has_elements_of_the_type_that_was_asked_for(llama, key, kind, values):
    found = llama.need_list(key, kind)
    assert found == values
    assert {type(value) for value in found} <= {kind}
    assert llama.get(key, [kind()]) == values
    assert llama.get(key, []) == [v.item() for v in VALUES[f"llama.{key}"]]


@pytest.mark.parametrize(
    ("key", "kind", "sentence"),
    [
        ("factors", int, "a list of 2 values (float32), expected a list of which each is a whole"),
        ("heads", str, "is a list of 4 values (int32), expected a list of which each is text"),
        ("block_count", int, "is 4, expected a list"),
    ],
)
def test_a_list_of_the_wrong_type_is_a_sentence(llama, key, kind, sentence):
    with pytest.raises(BadModel) as error:
        llama.need_list(key, kind)
    assert sentence in str(error.value)


def test_a_list_may_be_changed_without_changing_the_file(meta):
    meta.need_list("tokenizer.tokens", str).append("c")
    assert meta.need_list("tokenizer.tokens", str) == ["a", "b"]


def test_text_is_not_a_list_of_letters(meta):
    with pytest.raises(BadModel, match="is 'llama', expected a list"):
        meta.need_list("general.architecture", str)


def test_one_value_or_one_for_each_layer(llama):
    assert llama.need_per_layer("block_count", int, 3) == [4, 4, 4]
    assert llama.need_per_layer("heads", int, 4) == [4, 4, 8, 8]
    assert llama.get_per_layer("heads", 1, 4) == [4, 4, 8, 8]
    with pytest.raises(BadModel, match=r"'llama.heads' has 4 values, expected one for each of 5"):
        llama.get_per_layer("heads", 1, 5)


def test_what_nobody_asked_for_is_unread(meta):
    assert meta.unread() == sorted(VALUES)
    llama = meta.for_architecture()
    llama.need("block_count", int)
    llama.get("no.such.key", 0)
    assert "tied" in llama
    assert "nothing" not in llama
    llama.root.get("tokenizer.tokens", [])
    assert meta.unread() == [
        "llama.empty",
        "llama.eps",
        "llama.factors",
        "llama.heads",
        "llama.window",
    ]
    assert llama.under("he").unread() == []


def test_looking_at_everything_is_not_reading(meta):
    assert dict(meta.items()) == VALUES
    assert len(meta) == len(VALUES)
    assert len(meta.under("llama")) == 7
    assert len(meta.unread()) == len(VALUES)


def test_another_architecture_can_be_named(meta):
    assert meta.for_architecture("tokenizer").get("tokens", []) == ["a", "b"]
    assert meta.architecture == "llama"


def test_long_values_are_described_in_a_few_words():
    assert describe("x" * 100) == repr("x" * 60 + "…")
    assert describe(["a"] * 2000) == "a list of 2,000 strings"
    assert describe(np.zeros(3, np.uint8)) == "a list of 3 values (uint8)"
    assert describe(True) == "true"
