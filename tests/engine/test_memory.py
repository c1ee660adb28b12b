"""The plan of memory before anything is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbodflash_engine.errors import DoesNotFit
from turbodflash_engine.memory import (
    AUTO,
    CARD,
    HOST,
    Alternative,
    LayerCache,
    Load,
    Needs,
    Piece,
    Plan,
    Room,
    Scratch,
    Split,
    Wish,
    by_kind,
    fits,
    free,
    free_bytes,
    lacking,
    pieces_of,
    plan_memory,
    shares,
    taken,
)

GIB = 2**30
PER_POSITION = 3072
LAYERS = 4
TRAINED = 8192


def needs(layers: int = LAYERS, *, tied: bool = False, window: int = 0, host: int = 0) -> Needs:
    """A GIB of matrices: an eighth each for embedding and head, the rest in the layers."""
    part = GIB // 8
    ends = [Piece("embedding", -1, part), Piece("head", layers, part)]
    inner = [
        Piece(kind, layer, (GIB - 2 * part) // (2 * layers))
        for layer in range(layers)
        for kind in ("attention", "mlp")
    ]
    return Needs(
        layers,
        (*(ends[:1] if tied else ends), *inner),
        tuple(LayerCache(layer, PER_POSITION / layers, window) for layer in range(layers)),
        Scratch(1000, 2.0),
        host,
    )


MODEL = Load(needs())
WHOLE = 5000 * PER_POSITION + GIB + 1000 + 2 * 5000


def plan(context: int = 0, host: int | None = None, load: Load = MODEL) -> Plan:
    return plan_memory(load, Wish(TRAINED, context), Room(host))


@pytest.mark.parametrize(
    ("asked", "planned"), [(0, 8192), (1, 256), (256, 256), (257, 512), (4000, 4096), (8192, 8192)]
)
def test_a_context_is_rounded_up_to_whole_steps(asked: int, planned: int) -> None:
    found = plan(asked)
    assert found.context == planned
    assert found.memory == (GIB, planned * PER_POSITION, 1000 + 2 * planned, 0)
    assert found.notes == ()


def test_a_context_beyond_the_trained_one_is_noted() -> None:
    found = plan(9000)
    assert found.context == 9216
    assert found.notes == (
        "a context of 9,000 tokens is beyond the 8,192 that the model was trained on; "
        "quality may drop",
    )


def test_the_trained_context_is_cut_to_what_fits() -> None:
    found = plan(0, WHOLE)
    assert found.context == 4864
    assert found.notes == ("the context is 4,864 tokens, not 8,192: more does not fit memory",)
    assert sum(found.memory) <= WHOLE


def test_it_is_cut_below_what_is_comfortable_before_it_is_refused() -> None:
    assert plan(0, GIB + 300 * (PER_POSITION + 2) + 1000).context == 256


def test_nothing_is_cut_where_that_was_forbidden() -> None:
    wish = Wish(TRAINED, fit=False)
    assert plan_memory(MODEL, wish, Room(2 * GIB)).context == TRAINED
    with pytest.raises(DoesNotFit, match="8,192 tokens") as caught:
        plan_memory(MODEL, wish, Room(WHOLE))
    assert caught.value.hint.startswith("-c 4864 or a file of this model of at most ")


def test_a_context_that_was_asked_for_is_not_cut() -> None:
    with pytest.raises(DoesNotFit) as caught:
        plan(1_000_000, 2 * GIB)
    assert str(caught.value) == (
        "the model needs 3.9 GiB of memory at a context of 1,000,192 tokens, 2.9 GiB of it for "
        "keys and values; 2.0 GiB are free, 1.9 GiB too few"
    )
    fitting = int(caught.value.hint.split()[1])
    assert plan(fitting, 2 * GIB).context == fitting
    with pytest.raises(DoesNotFit):
        plan(fitting + 1, 2 * GIB)


@pytest.mark.parametrize("context", [0, 256])
def test_a_model_that_does_not_fit_at_all_says_so(context: int) -> None:
    with pytest.raises(DoesNotFit, match=r"needs 1.0 GiB .* 0.5 GiB are free") as caught:
        plan(context, GIB // 2)
    assert caught.value.hint == "a file of this model of at most 0.5 GiB fits"
    with pytest.raises(DoesNotFit) as caught:
        plan(context, 500)
    assert caught.value.hint == "use a smaller file of this model"


def test_what_would_fit_is_named_the_least_harmful_first() -> None:
    smaller = replace_caches(MODEL, PER_POSITION / 2)
    tiny = replace_caches(MODEL, PER_POSITION / 20)
    with_draft = Load(MODEL.model, needs(1))
    cheaper = (Alternative("-ctk q8_0 -ctv q8_0", smaller), Alternative("-ctk turbo4", tiny))
    room = Room(GIB + 20_000_000)
    with pytest.raises(DoesNotFit) as caught:
        plan_memory(MODEL, Wish(TRAINED, 8192), room, cheaper)
    assert caught.value.hint == "-ctk q8_0 -ctv q8_0 or -ctk turbo4 fits"
    with pytest.raises(DoesNotFit, match="the model and its draft need") as caught:
        plan_memory(with_draft, Wish(TRAINED, 256), room)
    assert caught.value.hint.startswith("no draft or ")


def replace_caches(load: Load, per_position: float) -> Load:
    caches = tuple(LayerCache(layer, per_position / LAYERS) for layer in range(LAYERS))
    return Load(load.model._replace(caches=caches))


# -- a card --------------------------------------------------------------------------------------


def on_card(layers: int, card: int | None, context: int = 256, load: Load = MODEL) -> Plan:
    return plan_memory(load, Wish(TRAINED, context, layers), Room(8 * GIB, card, True))


def test_layers_go_from_the_end_and_the_embedding_last() -> None:
    def weights(layers: int, place: str, kind: str) -> int:
        found = shares(MODEL, 256, Split(layers))
        return sum(s.nbytes for s in found if (s.place, s.kind) == (place, kind))

    assert weights(1, CARD, "head") == GIB // 8
    assert weights(1, CARD, "attention") == 0
    assert weights(3, CARD, "attention") == 2 * weights(5, CARD, "attention") // 4
    assert weights(4, HOST, "embedding") == weights(5, CARD, "embedding") == GIB // 8
    assert weights(5, HOST, "embedding") == weights(4, CARD, "embedding") == 0
    assert taken(shares(MODEL, 256, Split(5)), HOST) == 0


def test_a_tied_head_on_a_card_is_a_copy_of_the_embedding() -> None:
    load = Load(needs(tied=True))
    head = [s for s in shares(load, 256, Split(1)) if s.kind == "head"]
    assert [(s.place, s.nbytes) for s in head] == [(CARD, GIB // 8)]
    assert not [s for s in shares(load, 256, Split(5)) if s.kind == "head"]


@given(st.integers(0, 7), st.integers(0, 40), st.booleans())
def test_a_split_moves_bytes_and_loses_none(layers: int, steps: int, tied: bool) -> None:
    load = Load(needs(tied=tied, host=77))
    kinds = ("head", "scratch")  # a copy of a tied head, and room to compute on either side
    whole = shares(load, 256 * steps)
    split = shares(load, 256 * steps, Split(layers))
    for found in (whole, split):
        assert all(share.nbytes > 0 for share in found)
    assert sum(s.nbytes for s in whole if s.kind not in kinds) == sum(
        s.nbytes for s in split if s.kind not in kinds
    )
    assert taken(split, CARD) + taken(split, HOST) == sum(s.nbytes for s in split)


@given(st.integers(1, 40), st.integers(0, 5), st.sampled_from([0, 512]))
def test_more_context_never_costs_less_nor_do_more_layers(
    steps: int, layers: int, window: int
) -> None:
    load = Load(needs(window=window), needs(1))
    room = Room(0, 0, True)
    here = lacking(load, 256 * steps, Split(layers), room)
    longer = lacking(load, 256 * (steps + 1), Split(layers), room)
    assert all(longer[place] >= here[place] for place in (HOST, CARD))
    more = lacking(load, 256 * steps, Split(layers + 1), room)
    assert more[CARD] >= here[CARD]
    assert more[HOST] <= here[HOST]


def test_as_many_layers_go_on_the_card_as_fit() -> None:
    found = on_card(AUTO, GIB // 2)
    assert 1 < found.split.layers < LAYERS + 1
    assert fits(MODEL, 256, found.split, Room(8 * GIB, GIB // 2))
    one_more = Split(found.split.layers + 1)
    assert not fits(MODEL, 256, one_more, Room(8 * GIB, GIB // 2))
    assert found.notes == (
        f"{found.split.layers} of 5 layers are on the GPU: more does not fit it",
    )
    assert on_card(AUTO, 8 * GIB).split.layers == LAYERS + 1
    assert on_card(AUTO, 0).split.layers == 0
    assert on_card(99, 8 * GIB).split.layers == LAYERS + 1


def test_a_long_context_is_cut_to_4096_before_a_layer_leaves_the_card() -> None:
    found = plan_memory(MODEL, Wish(TRAINED, layers=AUTO), Room(8 * GIB, GIB + 15_000_000, True))
    assert found.split.layers == LAYERS + 1
    assert 4096 <= found.context < TRAINED


def test_layers_that_were_asked_for_are_refused_with_numbers() -> None:
    with pytest.raises(DoesNotFit, match=r"1.0 GiB of the GPU's memory .* 0.5 GiB are free") as e:
        on_card(99, GIB // 2)
    hinted = int(e.value.hint.split()[1])
    assert e.value.hint.startswith(f"-ngl {hinted} or a file of this model of at most ")
    assert on_card(hinted, GIB // 2).split.layers == hinted
    with pytest.raises(DoesNotFit):
        on_card(hinted + 1, GIB // 2)


def test_the_published_failure_is_refused_with_a_proposal() -> None:
    """A 31B model at Q5 and its draft at 64k on a card of 32 GB."""
    load = Load(_gemma(kv_bytes=2 * 1.0625), Needs(0, (Piece("mlp", 0, int(1.1 * GIB)),)))
    room = Room(64 * GIB, int(31.3 * GIB), True)
    wish = Wish(262_144, 65_536, 99)
    tighter = Alternative("-ctk turbo4 -ctv turbo4", load._replace(model=_gemma(2 * 0.515625)))
    heavy = load._replace(draft=Needs(0, (Piece("mlp", 0, 8 * GIB),)))
    with pytest.raises(DoesNotFit, match="the model and its draft need") as caught:
        plan_memory(heavy, wish, room, (tighter._replace(load=heavy),))
    assert caught.value.hint.endswith(" fits")
    assert "of the GPU's memory at a context of 65,536 tokens" in str(caught.value)


def _gemma(kv_bytes: float) -> Needs:
    sliding = [LayerCache(layer, 16 * 256 * kv_bytes, 1024 + 512) for layer in range(50)]
    full = [LayerCache(layer, 4 * 512 * kv_bytes) for layer in range(50, 60)]
    layers = [Piece("mlp", layer, int(21.6 * GIB / 60)) for layer in range(60)]
    return Needs(60, (Piece("embedding", -1, int(0.9 * GIB)), *layers), (*sliding, *full))


def test_the_draft_goes_where_the_head_is_unless_it_is_said() -> None:
    load = Load(needs(), needs(1))
    assert on_card(1, 8 * GIB, load=load).split == Split(1, True)
    assert on_card(0, 8 * GIB, load=load).split == Split(0, False)
    wish = Wish(TRAINED, 256, 5, draft=False)
    assert plan_memory(load, wish, Room(8 * GIB, 8 * GIB, True)).split == Split(5, False)


# -- names of tensors ----------------------------------------------------------------------------


def test_tensors_are_told_apart_by_what_they_are_for() -> None:
    sizes = {
        "token_embd.weight": 1,
        "blk.0.attn_q.weight": 10,
        "blk.0.attn_norm.weight": 20,
        "blk.1.ssm_out.weight": 30,
        "blk.1.ffn_up.weight": 100,
        "blk.1.ffn_up_exps.weight": 1000,
        "blk.1.ffn_up_shexp.weight": 200,
        "output_norm.weight": 5,
        "output.weight": 7,
    }
    found = pieces_of(sizes, 2)
    assert by_kind(found) == {
        "embedding": 1,
        "attention": 60,
        "mlp": 300,
        "experts": 1000,
        "head": 7,
        "other": 5,
    }
    assert {(piece.kind, piece.layer) for piece in found} == {
        ("embedding", -1),
        ("attention", 0),
        ("attention", 1),
        ("mlp", 1),
        ("experts", 1),
        ("head", 2),
        ("other", 2),
    }


@pytest.mark.parametrize(
    ("cache", "kind", "nbytes"),
    [
        (LayerCache(0, 10.0), "all positions", 20_000),
        (LayerCache(0, 10.0, most=512), "window", 5120),
        (LayerCache(0, 10.0, most=4096), "window", 20_000),
        (LayerCache(0, 0.0, fixed=99), "recurrent", 99),
    ],
)
def test_kinds_of_memory(cache: LayerCache, kind: str, nbytes: int) -> None:
    assert (cache.kind, cache.nbytes(2000)) == (kind, nbytes)


# -- what is free --------------------------------------------------------------------------------


def test_free_memory_is_known_and_less_than_all() -> None:
    found = free_bytes()
    assert found is None or 0 < found < 2**50


def test_a_control_group_limits_what_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(free, "GROUPS", tmp_path)
    monkeypatch.setattr(free, "_system_free", lambda: 10_000)
    assert free_bytes() == 10_000
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("3000\n")
    assert free_bytes() == 2000
    (tmp_path / "memory.stat").write_text("anon 7\nactive_file 100\ninactive_file 500\n")
    assert free_bytes() == 2500
    (tmp_path / "memory.max").write_text("max\n")
    assert free_bytes() == 10_000
