"""What goes wrong with drafts without anybody noticing, as far as no other test has it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType, quantize

from tests.engine.block_drafts import PAIRS, SPARK, TEXT, V1, V2, Logits, built, values_of, variant
from tests.engine.spec_runs import draft_for, read_prompt, take_step
from tests.engine.tiny_models import Made, build, made, path_of, tensors_of, tiny
from turbodflash_engine import plugins
from turbodflash_engine.drafters._base import Drafter, Rows
from turbodflash_engine.drafters._chain import Chain
from turbodflash_engine.drafters._first import FirstOf
from turbodflash_engine.drafters.eagle3 import Eagle3
from turbodflash_engine.errors import BadModel
from turbodflash_engine.events import Finished, Text, Verified
from turbodflash_engine.metadata import Metadata
from turbodflash_engine.models import _trunk
from turbodflash_engine.models._base import Model, Shared
from turbodflash_engine.options import (
    LoadOptions,
    NgramOptions,
    SampleOptions,
    SayOptions,
    SpecOptions,
)
from turbodflash_engine.session import Session, open_session
from turbodflash_kernels.device import KV, Device, open_device
from turbodflash_kernels.op import RmsNorm

EAGLES = ("eagle3--qwen3", "eagle3-d2t--qwen3")
BAD = (np.nan, np.inf, 1e6, 3e38)


def plain_text(target: Model, prompt: Sequence[int], count: int) -> list[int]:
    """What the model says by itself."""
    target.cache.truncate(0)
    text = list(prompt)
    rest = text
    for _ in range(count):
        text.append(int(target(rest).logits[-1].argmax()))
        rest = text[-1:]
    target.cache.truncate(0)
    return text


def logits_after(drafter: Any, target: Model, device: Device, text: Sequence[int]) -> Any:
    target.cache.truncate(0)
    logits = Logits(drafter, device)
    read_prompt(target, drafter, text)
    return logits(text)


# --- rows of the model may hold anything ----------------------------------------------------------


class Spoilt:
    """Shows a drafter some rows of the model that are not the model's."""

    def __init__(self, drafter: Drafter, device: Device, value: float, spoils: range) -> None:
        self.drafter, self.taps = drafter, drafter.taps
        self._device, self._value, self._spoils = device, value, spoils

    def draft(self, history: Sequence[int], width: int) -> Any:
        return self.drafter.draft(history, width)

    def observe(
        self, tokens: Sequence[int], positions: range, taps: Sequence[Rows], coming: int = 0
    ) -> None:
        rows = [self._device.read(tap).copy() for tap in taps]
        for index, position in enumerate(positions):
            if position in self._spoils:
                for row in rows:
                    row[index, ::5] = self._value
        self.drafter.observe(tokens, positions, [*map(self._device.upload, rows)], coming)


def rounded(pair: str, name: str) -> Made:
    """A matrix of a file with 8 bits a weight."""
    values = values_of(pair, name)
    data = quantize(values, GGMLQuantizationType.Q8_0)
    return Made(name, "Q8_0", values.shape[::-1], data)


def fused_in_8_bits(pair: str) -> tuple[Metadata, dict[str, Any]]:
    metadata, infos = tensors_of(pair)
    return metadata, {**infos, "fc.weight": rounded(pair, "fc.weight")}


def memory_of(drafter: Any) -> Sequence[KV]:
    return [drafter._memory] if isinstance(drafter, Eagle3) else drafter._context.memory


@pytest.mark.parametrize(
    ("device", "pair", "file", "value"),
    [
        *(("cpu", pair, tensors_of, value) for pair in (*PAIRS, *EAGLES) for value in BAD),
        *(("cpu", pair, fused_in_8_bits, value) for pair in (V1, EAGLES[0]) for value in BAD),
        *(("reference", pair, tensors_of, np.nan) for pair in (V1, EAGLES[0])),
    ],
    indirect=["device"],
)
def test_rows_that_are_no_numbers_do_not_end_all_drafts(
    file: Callable[[str], Any], pair: str, value: float, target: Model, device: Device
) -> None:
    """Sinks of some models are near 1e6, and a row may overflow: a draft may be bad, once."""
    text = TEXT[:30]
    expected = plain_text(target, text, 55)
    drafter = draft_for(target, device, file(pair))
    spoilt: Any = Spoilt(drafter, device, value, range(3, 34))
    with np.errstate(all="ignore"):  # what plain numpy warns of
        read_prompt(target, spoilt, text, chunk=11)
        for _ in range(9):
            step = take_step(target, spoilt, text, 5)
    assert len(text) > 34
    assert text == expected[: len(text)]
    assert len(step.draft) == 5
    for memory in memory_of(drafter):
        assert all(np.isfinite(part).all() for part in memory.read(0, len(text) - 1))


@pytest.mark.parametrize("bad", [np.nan, -np.inf])
def test_a_chain_ends_where_logits_are_no_numbers(bad: float) -> None:
    chain = Chain(p_min=0.0)
    assert chain.add(np.array([2.0, 1.0], np.float32), np.array([7, 8], np.int32)) == 7
    assert chain.add(np.array([bad, bad], np.float32), np.array([0, 1], np.int32)) is None
    assert chain.draft().tokens == (7,)


def test_huge_rows_are_rows_like_others(target: Model, device: Device) -> None:
    """Fused rows are normed: a model a million times as loud says the same."""
    text = TEXT[:30]
    expected = logits_after(built(V1, target, device), target, device, text)
    louder = [made("fc.weight", values_of(V1, "fc.weight") * 1e6)]
    found = logits_after(built(variant(V1, None, louder), target, device), target, device, text)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-2)


# --- norms ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("pair", [*PAIRS, *EAGLES])
def test_every_norm_of_a_draft_adds_what_the_drafts_own_file_says(
    pair: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drafts of one family are trained with other epsilons than their models, q and k norms too."""
    device = open_device("reference")
    model = tiny("qwen3", device)
    metadata, infos = tensors_of(pair)
    key = f"{metadata.architecture}.attention.layer_norm_rms_epsilon"
    other = Metadata(dict(metadata.items()) | {key: 0.25}, "draft.gguf")
    found: list[RmsNorm] = []
    bind = device.bind

    def spy(op: str, /, **static: Any) -> Any:
        values = [*static.values(), *static.get("norms", ())]
        found.extend(value for value in values if isinstance(value, RmsNorm))
        return bind(op, **static)

    monkeypatch.setattr(device, "bind", spy)
    draft_for(model, device, (other, infos))
    assert len(found) >= 4
    assert {norm.eps for norm in found} == {0.25}


# --- tables of the model --------------------------------------------------------------------------


def test_the_models_scale_of_embeddings_is_not_the_drafts(target: Model, device: Device) -> None:
    """The shared table is raw; only the draft's own key scales its rows."""

    class Scaling:
        """The model, if it multiplied its embeddings."""

        shared = target.shared._replace(embedding_scale=8.0)

    def logits(model: Any, keys: dict[str, object]) -> Any:
        drafter = draft_for(model, device, variant(V1, keys))
        return logits_after(drafter, target, device, TEXT[:30])

    expected = logits(target, {})
    np.testing.assert_array_equal(logits(Scaling, {}), expected)
    scaled = logits(Scaling, {"dflash.embedding_scale": 8.0})
    np.testing.assert_array_equal(scaled, logits(target, {"dflash.embedding_scale": 8.0}))
    assert np.abs(scaled - expected).max() > 0.1


def test_a_person_is_told_where_the_scale_of_embeddings_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device = open_device("reference")
    shared = tiny("qwen3", device).shared
    scaling = shared._replace(embedding_scale=8.0)
    own = [made("token_embd.weight", values_of("qwen3", "token_embd.weight"))]

    def notes(target: Shared, pair: str = V1, *changes: Any) -> tuple[str, ...]:
        metadata, infos = variant(pair, *changes)
        kind = plugins.find("drafters", "dspark" if pair == SPARK else "dflash")
        found: tuple[str, ...] = kind.notes(kind.read(metadata), infos, target)
        return found

    for pair in (V1, SPARK):
        [note] = notes(scaling, pair)
        assert "embeddings by 8, and 'some.gguf' uses them" in note
        assert "'dflash.embedding_scale'" in note
    assert notes(shared) == notes(scaling, V1, {"dflash.embedding_scale": 8.0}) == ()
    assert notes(scaling, V1, {}, own) == ()

    def scaled(*parts: Any, **named: Any) -> Shared:
        return Shared(*parts, **named)._replace(embedding_scale=8.0)

    monkeypatch.setattr(_trunk, "Shared", scaled)
    assert "embeddings by 8" in session_of(V1).info.notes[-1]


def test_a_tied_models_head_is_its_embedding(device: Device) -> None:
    metadata, infos = tensors_of("qwen3")
    tied = {name: info for name, info in infos.items() if name != "output.weight"}
    target = build(metadata, tied, device)
    own = [made("output.weight", values_of("qwen3", "token_embd.weight"))]
    for pair in (V1, SPARK):
        shared = built(pair, target, device)
        apart = built(variant(pair, None, own), target, device)
        np.testing.assert_array_equal(
            *(logits_after(each, target, device, TEXT[:30]) for each in (shared, apart))
        )


@pytest.mark.parametrize("pair", [V1, SPARK])
def test_only_a_dflash2_scales_and_caps_its_logits(
    pair: str, target: Model, device: Device
) -> None:
    keys = {"dflash.logit_scale": 0.5, "dflash.final_logit_softcapping": 3.0}
    np.testing.assert_array_equal(
        *(
            logits_after(built(variant(pair, more), target, device), target, device, TEXT[:30])
            for more in ({}, keys)
        )
    )


def narrow_eagle(without: Sequence[str] = ()) -> tuple[Metadata, dict[str, Made]]:
    """An EAGLE-3 of width 32 for a model of width 64, its weights random."""
    metadata, infos = tensors_of("eagle3--qwen3")
    values = dict(metadata.items()) | {"eagle3.embedding_length": 32}
    rng = np.random.default_rng(5)
    shapes = {name: info.shape for name, info in infos.items()}
    shapes |= {"token_embd.weight": (32, 512), "output.weight": (32, 512), "fc.weight": (192, 32)}
    for name in ("ffn_gate", "ffn_up", "ffn_norm", "attn_norm", "attn_norm_2"):
        shapes[f"blk.0.{name}.weight"] = (32, *shapes[f"blk.0.{name}.weight"][1:])
    for name in "qkv":
        shapes[f"blk.0.attn_{name}.weight"] = (64, *shapes[f"blk.0.attn_{name}.weight"][1:])
    for name in ("ffn_down", "attn_output"):
        shapes[f"blk.0.{name}.weight"] = (shapes[f"blk.0.{name}.weight"][0], 32)
    shapes["output_norm.weight"] = (32,)
    tensors = {
        name: made(name, (rng.standard_normal(shape[::-1]) / 6).astype(np.float32))
        for name, shape in shapes.items()
        if name not in without
    }
    return Metadata(values, "narrow.gguf"), tensors


def test_an_eagle_may_be_narrower_than_its_model(target: Model, device: Device) -> None:
    text = TEXT[:30]
    expected = plain_text(target, text, 40)
    drafter = draft_for(target, device, narrow_eagle())
    read_prompt(target, drafter, text)
    steps = [take_step(target, drafter, text, 4) for _ in range(5)]
    assert [len(step.draft) for step in steps] == [4] * 5
    assert text == expected[: len(text)]


@pytest.mark.parametrize("name", ["token_embd.weight", "output.weight"])
def test_a_narrower_eagle_cannot_share_tables(name: str, target: Model, device: Device) -> None:
    with pytest.raises(BadModel, match=f"no tensor '{name}'.* rows of 64, but the draft's .* 32"):
        draft_for(target, device, narrow_eagle(without=[name]))


@pytest.mark.parametrize(
    ("pair", "key", "said"),
    [
        (V2, "dflash.selector_rank", "DFlash2 draft without 'dflash.selector_rank'"),
        (V2, "dflash.selector_top_k", "DFlash2 draft without 'dflash.selector_top_k'"),
        ("eagle3--qwen3", "eagle3.target_layers", "no metadata key 'eagle3.target_layers'"),
        ("eagle3--qwen3", "eagle3.target_hidden_size", "no metadata key '.*target_hidden_size'"),
    ],
)
def test_what_a_draft_cannot_do_without_is_named(
    pair: str, key: str, said: str, target: Model, device: Device
) -> None:
    with pytest.raises(BadModel, match=said):
        draft_for(target, device, variant(pair, without=[key]))


# --- every token is seen, once --------------------------------------------------------------------


def plain_step(target: Model, drafter: Drafter, text: list[int]) -> None:
    """A step without a draft; its token is observed like any other."""
    at = target.cache.length
    output = target(text[-1:], taps=drafter.taps)
    drafter.observe(text[-1:], range(at, at + 1), output.taps)
    text.append(int(output.logits[-1].argmax()))


@pytest.mark.parametrize("pair", [V1, V2, SPARK])
def test_tokens_of_plain_steps_and_of_other_drafters_leave_no_hole(
    pair: str, target: Model, device: Device
) -> None:
    ngram = plugins.find("drafters", "ngram_simple").build(
        SpecOptions(ngram_simple=NgramOptions(1, 3))
    )
    drafter = built(pair, target, device)
    logits = Logits(drafter, device)
    both, text = FirstOf([drafter, ngram]), TEXT[:12] * 2
    read_prompt(target, both, text)
    followed = []
    for _ in range(8):
        plain_step(target, both, text)
        followed.append(bool(ngram.draft(text, 3).tokens))
        take_step(target, both, text, 4)
    assert any(followed)
    found = logits(text)
    fresh = built(pair, target, device)
    np.testing.assert_array_equal(found, logits_after(fresh, target, device, text))


# --- a session ------------------------------------------------------------------------------------

GREEDY = SayOptions(max_tokens=24, sample=SampleOptions(temp=0), special=True)


def session_of(pair: str) -> Session:
    spec = SpecOptions(model=path_of(pair), width=5)
    return open_session(LoadOptions(path_of("qwen3"), context=256, threads=1, spec=spec))


def answer(session: Session, prompt: str) -> tuple[str, list[Verified], Finished]:
    events = list(session.complete(prompt, GREEDY))
    said = "".join(event.piece for event in events if isinstance(event, Text))
    [finished] = [event for event in events if isinstance(event, Finished)]
    return said, [event for event in events if isinstance(event, Verified)], finished


@pytest.mark.parametrize("pair", [V1, SPARK, *EAGLES])
def test_a_prompt_that_is_known_already_is_drafted_for_as_a_new_one(pair: str) -> None:
    """What the cache of the model keeps is not observed again: that of the draft must keep it."""
    first, second = "once upon a time there was a", "once upon a time there was a king who"
    session = session_of(pair)
    before = answer(session, first)
    again = answer(session, first)
    longer = answer(session, second)
    assert again[2].cached_tokens > 0
    assert longer[2].cached_tokens > 0
    assert before[0]
    assert again[:2] == before[:2]
    if pair not in EAGLES:
        assert longer[:2] == answer(session_of(pair), second)[:2]
