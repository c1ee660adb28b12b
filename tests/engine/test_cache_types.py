"""From the types that were asked for to what each layer stores, and what is said of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbodflash_engine.cache import CacheTypes, KVShape, type_names
from turbodflash_engine.cache.protection import protect
from turbodflash_engine.errors import BadUsage, Unknown
from turbodflash_engine.options import CACHE_TYPES, KV_PROTECTIONS, LoadOptions, SpecOptions

SHAPE = KVShape(2, 128, 128, group=4)
QWEN = [KVShape(4, 128, 128, group=7)] * 28
types = st.sampled_from(CACHE_TYPES)
groups = st.lists(st.integers(1, 12), min_size=1, max_size=40)


def names(asked: CacheTypes, shapes: list[KVShape]) -> list[tuple[str, str]]:
    return [(each.k.type.name, each.v.type.name) for each in asked.of_layers(shapes)]


@given(types, types, groups)
def test_without_protection_every_layer_is_as_asked(k: str, v: str, groups: list[int]) -> None:
    assert set(protect(k, v, "none", groups).layers) == {(k, v)}


@given(types, types, st.sampled_from(KV_PROTECTIONS), groups)
def test_a_type_is_only_ever_replaced_by_a_better_one_and_that_is_said(
    k: str, v: str, mode: str, groups: list[int]
) -> None:
    found = protect(k, v, mode, groups)
    rank = CACHE_TYPES.index
    for layer in found.layers:
        assert layer.k in (k, "q8_0")
        assert layer.v in (v, "q8_0")
        assert rank(layer.k) <= rank(k)
        assert rank(layer.v) <= rank(v)
    changed = [
        side for side, asked in enumerate((k, v)) if {x[side] for x in found.layers} != {asked}
    ]
    acts = [note for note in found.notes if "are stored as q8_0 instead of" in note]
    assert len(acts) == len(changed)


def test_auto_keeps_keys_that_many_query_heads_share() -> None:
    asked = CacheTypes("turbo4", "turbo4", protect="auto")
    assert set(names(asked, QWEN)) == {("q8_0", "turbo4")}
    assert asked.notes(QWEN) == (
        "keys of attention layers 0-27 are stored as q8_0 instead of turbo4: "
        "7 query heads share each",
    )
    assert type_names(asked.of_layers(QWEN)) == ("q8_0", "turbo4")


def test_auto_leaves_mixed_pairs_and_small_groups() -> None:
    assert set(names(CacheTypes("turbo4", "turbo3", protect="auto"), QWEN)) == {
        ("turbo4", "turbo3")
    }
    few = [KVShape(2, 128, 128, group=5)] * 28
    assert set(names(CacheTypes("turbo3", "turbo3", protect="auto"), few)) == {("turbo3", "turbo3")}


def test_auto_counts_each_layers_own_groups() -> None:
    shapes = [KVShape(8, 128, 128, group=4), KVShape(2, 128, 128, group=16)] * 3
    found = CacheTypes("turbo3", "turbo3", protect="auto").of_layers(shapes)
    assert [each.k.type.name for each in found] == ["turbo3", "q8_0"] * 3


def test_auto_keeps_the_ends_of_two_bit_values() -> None:
    asked = CacheTypes("q8_0", "turbo2", protect="auto")
    values = [v for _, v in names(asked, [SHAPE] * 10)]
    assert values == ["q8_0"] * 2 + ["turbo2"] * 6 + ["q8_0"] * 2
    assert asked.notes([SHAPE] * 10) == (
        "values of attention layers 0-1, 8-9 are stored as q8_0 instead of turbo2: "
        "the first and last layers matter most",
    )
    assert type_names(asked.of_layers([SHAPE] * 10)) == ("q8_0", "turbo2+q8_0")


@pytest.mark.parametrize("v", ["turbo4", "q4_0", "iq4_nl", "q5_1"])
def test_boundary_never_touches_the_middle(v: str) -> None:
    values = [found for _, found in names(CacheTypes("f16", v, protect="boundary"), [SHAPE] * 8)]
    assert values == ["q8_0"] * 2 + [v] * 4 + ["q8_0"] * 2


@pytest.mark.parametrize(
    ("v", "layers", "why"),
    [("turbo3", 7, "of 7 attention layers none"), ("f16", 12, "values in f16 lose no more")],
)
def test_boundary_says_when_it_changes_nothing(v: str, layers: int, why: str) -> None:
    asked = CacheTypes("f16", v, protect="boundary")
    assert set(names(asked, [SHAPE] * layers)) == {("f16", v)}
    (note,) = asked.notes([SHAPE] * layers)
    assert why in note


def test_unprotected_keys_that_may_spoil_a_model_are_warned_of() -> None:
    (note,) = CacheTypes("turbo4", "turbo4").notes(QWEN)
    assert "--kv-protect auto keeps them in q8_0" in note


@pytest.mark.parametrize("type", ["turbo4", "turbo3", "turbo2"])
def test_padding_that_costs_is_told(type: str) -> None:
    shapes = [KVShape(3, 64, 64, group=3)] * 4
    found = CacheTypes(type, "f16").of_layers(shapes)[0]
    assert (found.k.padded, found.v.padded) == (128, 64)
    (note,) = CacheTypes(type, "f16").notes(shapes)
    assert note == (
        f"{type} fills heads of 64 numbers up to 128 and takes {found.k.row_bytes} bytes for each; "
        "q8_0 takes 68"
    )


def test_whole_blocks_are_not_worth_a_word() -> None:
    assert CacheTypes("q4_0", "turbo4").notes([SHAPE] * 3) == ()


@pytest.mark.parametrize(
    ("shapes", "rotates"),
    [
        ([SHAPE] * 3, True),
        ([KVShape(1, 576, 512)] * 2, True),
        ([KVShape(2, 80, 80)] * 2, False),
        ([SHAPE, KVShape(2, 256, 256)], False),
    ],
)
def test_heads_are_rotated_where_all_have_one_size_that_can_be(
    shapes: list[KVShape], rotates: bool
) -> None:
    asked = CacheTypes("q8_0", "q4_0")
    assert {each.rotated for each in asked.of_layers(shapes)} == {rotates}
    assert not any(each.rotated for each in asked._replace(rotate="off").of_layers(shapes))


def test_a_layer_whose_heads_cannot_be_rotated_is_named() -> None:
    shapes = [SHAPE, SHAPE, KVShape(2, 80, 80)]
    with pytest.raises(BadUsage, match="layer 2 cannot be stored as asked: heads of 80 numbers"):
        CacheTypes("f16", "q8_0", rotate="on").of_layers(shapes)
    assert CacheTypes("f16", "turbo3", rotate="on").of_layers(shapes)


@given(types, types)
def test_bytes_are_those_of_padded_heads(k: str, v: str) -> None:
    found = CacheTypes(k, v).of_layers([KVShape(3, 80, 80)])[0]
    assert found.nbytes == 3 * (found.k.row_bytes + found.v.row_bytes)
    assert found.k.row_bytes * found.k.type.block == found.k.padded * found.k.type.block_bytes


def test_a_draft_has_types_of_its_own_and_the_rules_of_its_model(tmp_path) -> None:
    spec = SpecOptions(cache_type_k="q5_0", cache_type_v="turbo2")
    options = LoadOptions(
        tmp_path, cache_type_k="q8_0", kv_rotate="off", kv_protect="auto", spec=spec
    )
    assert CacheTypes.of_model(options) == ("q8_0", "f16", "off", "auto")
    assert CacheTypes.of_draft(options) == ("q5_0", "turbo2", "off", "auto")


@pytest.mark.parametrize("field", ["cache_type_k", "cache_type_v"])
def test_an_unknown_type_is_refused_at_the_door(tmp_path, field: str) -> None:
    for make in (SpecOptions, lambda **given: LoadOptions(tmp_path, **given)):
        with pytest.raises(Unknown, match="no cache type named 'q3_0'"):
            make(**{field: "q3_0"})
