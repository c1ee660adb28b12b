"""EAGLE-3: the recorded drafts, and a state that depends on the text alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.engine.spec_runs import draft_for, read_prompt, recorded, runs, take_step, tiny_draft
from tests.engine.tiny_models import Made, made, tensors_of
from turbodflash_engine.drafters.eagle3 import Eagle3
from turbodflash_engine.errors import BadModel
from turbodflash_engine.metadata import Metadata
from turbodflash_engine.models._base import CachePlan, Model
from turbodflash_engine.options import SpecOptions
from turbodflash_kernels.device import Device

SHARED, OWN = "eagle3--qwen3", "eagle3-d2t--qwen3"
ATOL = 2e-4  # as recorded
PROMPTS = {run["prompt_name"]: run["prompt"] for run in runs(SHARED)}


def eagle(pair: str, target: Model, device: Device, **options: Any) -> Eagle3:
    drafter = tiny_draft(pair, target, device, SpecOptions(**options))
    assert isinstance(drafter, Eagle3)
    return drafter


def logits_of(drafter: Eagle3, device: Device, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Filled with the logits [tokens of the target] of every row that the drafter makes."""
    seen: list[NDArray[np.float32]] = []
    choose = drafter._chosen

    def chosen(chain: Any, row: Any) -> int | None:
        logits = device.read(drafter._head.logits(row.feature))[0]
        scattered = np.full(512, -np.inf, np.float32)
        scattered[drafter._words.tokens(np.arange(len(logits), dtype=np.int32))] = logits
        seen.append(scattered)
        return choose(chain, row)

    monkeypatch.setattr(drafter, "_chosen", chosen)
    return seen


# --- as recorded ----------------------------------------------------------------------------------


@pytest.mark.parametrize("pair", [SHARED, OWN])
@pytest.mark.parametrize(
    ("device", "number"),
    [*(("cpu", number) for number in range(9)), ("reference", 2), ("reference", 7)],
    indirect=["device"],
)
def test_runs_are_those_recorded(pair: str, number: int, target: Model, device: Device) -> None:
    run = runs(pair)[number]
    drafter = eagle(pair, target, device, n_max=run["n_max"], p_min=run["p_min"])
    text = list(run["prompt"])
    read_prompt(target, drafter, text)
    for step in run["steps"]:
        taken = take_step(target, drafter, text, run["n_max"])
        assert taken == (step["pos"], tuple(step["draft"]), step["n_accepted"])
    assert text[len(run["prompt"]) :] == run["emitted"]


@pytest.mark.parametrize("pair", [SHARED, OWN])
@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("n_max", [5, 3, 1, 2, 4])
def test_logits_are_those_recorded(
    pair: str,
    prompt: str,
    n_max: int,
    target: Model,
    device: Device,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drafter = eagle(pair, target, device, n_max=n_max)
    seen = logits_of(drafter, device, monkeypatch)
    text = list(PROMPTS[prompt])
    read_prompt(target, drafter, text, chunk=50)
    for call in range(4 if n_max in (3, 5) else 1):
        seen.clear()
        take_step(target, drafter, text, n_max)
        assert len(seen) == n_max
        expected = recorded(pair)[f"{prompt}_n{n_max}_call{call}"][0]
        np.testing.assert_allclose(seen[-1], expected, rtol=0, atol=ATOL)


# --- what it remembers depends on the text alone --------------------------------------------------


@pytest.mark.parametrize("inject", ["immediate", "deferred"])
@pytest.mark.parametrize("chunk", [1, 7, 100])
def test_drafts_do_not_depend_on_how_the_text_was_read(
    inject: str, chunk: int, target: Model, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = PROMPTS["B"]
    whole = eagle(SHARED, target, device)
    read_prompt(target, whole, text)
    expected = logits_of(whole, device, monkeypatch)
    whole.draft(text, 4)

    target.cache.truncate(0)
    drafter = eagle(SHARED, target, device, inject=inject)
    read_prompt(target, drafter, text, chunk)
    seen = logits_of(drafter, device, monkeypatch)
    drafter.draft(text, 4)
    np.testing.assert_array_equal(seen, expected)


@pytest.mark.parametrize("width", [1, 5])
def test_rejected_drafts_leave_no_trace(
    width: int, target: Model, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafter = eagle(SHARED, target, device)
    text = list(PROMPTS["A"])
    read_prompt(target, drafter, text)
    for _ in range(6):
        take_step(target, drafter, text, width)
    seen = logits_of(drafter, device, monkeypatch)
    drafter.draft(text, 4)

    target.cache.truncate(0)
    fresh = eagle(SHARED, target, device)
    read_prompt(target, fresh, text)
    expected = logits_of(fresh, device, monkeypatch)
    fresh.draft(text, 4)
    np.testing.assert_array_equal(seen, expected)


def test_a_draft_for_a_token_that_did_not_come_leaves_no_trace(
    target: Model, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafter = eagle(SHARED, target, device)
    text = list(PROMPTS["A"])
    read_prompt(target, drafter, text)
    drafter.draft([*text[:-1], 17], 5)
    drafter.truncate(len(text) - 1)
    take_step(target, drafter, text, 2)
    seen = logits_of(drafter, device, monkeypatch)
    drafter.draft(text, 4)

    target.cache.truncate(0)
    fresh = eagle(SHARED, target, device)
    read_prompt(target, fresh, text)
    expected = logits_of(fresh, device, monkeypatch)
    fresh.draft(text, 4)
    np.testing.assert_array_equal(seen, expected)


@pytest.mark.parametrize("length", [0, 30, 46])
def test_an_answer_that_is_given_again_is_drafted_as_before(
    length: int, target: Model, device: Device
) -> None:
    drafter = eagle(SHARED, target, device)
    prompt = list(PROMPTS["A"])
    text = list(prompt)
    read_prompt(target, drafter, text)
    first = [take_step(target, drafter, text, 5) for _ in range(10)]

    target.cache.truncate(length)
    drafter.truncate(length)
    rest = prompt[length:-1]
    output = target(rest, logits=0, taps=drafter.taps)
    drafter.observe(rest, range(length, len(prompt) - 1), output.taps)
    text = list(prompt)
    assert [take_step(target, drafter, text, 5) for _ in range(10)] == first


def test_nothing_is_drafted_where_the_feature_is_gone(target: Model, device: Device) -> None:
    drafter = eagle(SHARED, target, device, inject="immediate")
    text = list(PROMPTS["A"])
    assert drafter.draft(text[:1], 4).tokens == ()
    read_prompt(target, drafter, text)
    target.cache.truncate(20)
    drafter.truncate(20)
    text = text[:21]
    assert take_step(target, drafter, text, 4).draft == ()
    assert len(take_step(target, drafter, text, 4).draft) == 4


@pytest.mark.parametrize(("start", "stop"), [(4, 50), (1, 2), (20, 110)])
@pytest.mark.parametrize("drafts_before", [False, True])
def test_what_is_forgotten_leaves_one_row_off(
    drafts_before: bool, start: int, stop: int, target: Model, device: Device
) -> None:
    """The one before the gap, which is of a token that is gone."""
    text = runs(SHARED)[3]["prompt"][:120]
    forgetful, fresh = eagle(SHARED, target, device), eagle(SHARED, target, device)
    read = text[:-1]
    target.cache.truncate(0)
    output = target(read, logits=0, taps=forgetful.taps)
    taps = [device.upload(device.read(tap).copy()) for tap in output.taps]
    forgetful.observe(read, range(len(read)), taps)
    if drafts_before:
        forgetful.draft(text, 3)
    forgetful.forget(start, stop)
    fresh.observe(read[:start], range(start), [tap[:start] for tap in taps])
    behind = range(start, len(read) - (stop - start))
    fresh.observe(read[stop:], behind, [tap[stop:] for tap in taps])
    left = text[:start] + text[stop:]
    assert forgetful.draft(left, 3).tokens
    fresh.draft(left, 3)
    rows = len(left) - 1
    for ours, theirs in zip(
        *(each._memory.read(0, rows) for each in (forgetful, fresh)), strict=True
    ):
        off = np.abs(ours - theirs).reshape(rows, -1).max(axis=1) > 1e-4
        assert off.nonzero()[0].tolist() in ([start - 1], [])


def test_it_stops_where_its_context_ends_and_goes_on_after_a_cut(
    target: Model, device: Device
) -> None:
    text = list(PROMPTS["A"])
    plan = CachePlan(20, "f32", "f32")
    drafter = tiny_draft(SHARED, target, device, plan=plan)
    read_prompt(target, drafter, text, chunk=5)
    assert drafter.draft(text, 5).tokens == ()
    for length, expected in ((20, 1), (18, 3), (10, 5)):
        target.cache.truncate(length - 1)
        drafter.truncate(length - 1)
        one = text[length - 1 : length]
        output = target(one, logits=0, taps=drafter.taps)
        drafter.observe(one, range(length - 1, length), output.taps)
        assert len(drafter.draft(text[: length + 1], 5).tokens) == expected


def test_for_a_tree_it_tells_its_second_thoughts(target: Model, device: Device) -> None:
    drafter = eagle(OWN, target, device, tree=8)
    text = list(PROMPTS["A"])
    read_prompt(target, drafter, text)
    draft = drafter.draft(text, 3)
    assert draft.candidates is not None
    assert draft.candidates.shape == (3, 8)
    assert draft.candidates[:, 0].tolist() == list(draft.tokens)


def test_limits(target: Model, device: Device) -> None:
    drafter = eagle(OWN, target, device)
    assert drafter.name == "draft-eagle3"
    assert drafter.taps == (1, 4, 5)
    assert drafter.longest == 16
    assert eagle(OWN, target, device, n_max=3).longest == 3
    weights = sum(info.nbytes for info in tensors_of(OWN)[1].values() if info.type == "F32")
    assert drafter.nbytes > weights


# --- which files fit ------------------------------------------------------------------------------


def changed(**keys: object) -> Metadata:
    own = dict(tensors_of(SHARED)[0].items())
    return Metadata(own | {f"eagle3.{key}": value for key, value in keys.items()}, "draft.gguf")


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"target_hidden_size": 32}, "drafts for a model of width 32, but this one has width 64"),
        ({"target_layers": [1, 2]}, "names 2 layers, expected 3"),
        (
            {"target_layers": [1, 2, 6]},
            "has the layer 6, which is the output of the model's last layer",
        ),
        ({"target_layers": [1, 2, 9]}, "has the layer 9, which is no layer"),
        ({"target_layers": [-1, 2, 3]}, "has the layer -1, which is no layer"),
        ({"block_count": 2}, "'eagle3.block_count' is 2"),
        ({"attention.head_count_kv": 3}, "4 query heads over 3 key heads"),
        ({"norm_before_fc": True}, "has no tensor 'enc.output_norm.weight'"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(
    keys: dict[str, object], said: str, target: Model, device: Device
) -> None:
    with pytest.raises(BadModel, match=said):
        draft_for(target, device, (changed(**keys), tensors_of(SHARED)[1]))


def with_d2t(ids: NDArray[np.int64]) -> tuple[Metadata, dict[str, Any]]:
    metadata, infos = tensors_of(OWN)
    tensors: dict[str, Any] = dict(infos)
    data = np.ascontiguousarray(ids, np.int64).view(np.uint8).reshape(1, -1)
    tensors["d2t"] = Made("d2t", "I64", (len(ids),), data)
    return metadata, tensors


def test_tokens_relative_to_their_rows_are_understood(target: Model, device: Device) -> None:
    absolute = tensors_of(OWN)[1]["d2t"].data.view(np.int64).reshape(-1)
    relative = draft_for(target, device, with_d2t(absolute - np.arange(len(absolute))))
    drafter = draft_for(target, device, with_d2t(absolute))
    text = list(PROMPTS["A"])
    read_prompt(target, drafter, text)
    target.cache.truncate(0)
    read_prompt(target, relative, text)
    assert drafter.draft(text, 5) == relative.draft(text, 5)


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        (np.arange(320) + 200, "has tokens from 200 to 519, expected 0 to 511"),
        (np.arange(320) - 3, "has tokens from -3 to 316"),
        (np.arange(100), "names 100 tokens for a head of 320 rows"),
    ],
)
def test_tokens_that_the_model_lacks_are_refused(
    ids: NDArray[np.int64], said: str, target: Model, device: Device
) -> None:
    with pytest.raises(BadModel, match=said):
        draft_for(target, device, with_d2t(ids))


def test_a_smaller_head_must_name_its_tokens(target: Model, device: Device) -> None:
    metadata, infos = tensors_of(OWN)
    tensors = {name: info for name, info in infos.items() if name != "d2t"}
    with pytest.raises(BadModel, match="drafts 320 of the model's 512 tokens"):
        draft_for(target, device, (metadata, tensors))


def test_own_embeddings_of_fewer_tokens_will_do(target: Model, device: Device) -> None:
    metadata, infos = tensors_of(OWN)
    tensors: dict[str, Any] = dict(infos)
    table = infos["token_embd.weight"].data.view(np.float32)[:500]
    tensors["token_embd.weight"] = made("token_embd.weight", table)
    drafter = draft_for(target, device, (metadata, tensors))
    text = [*PROMPTS["A"], 511]
    read_prompt(target, drafter, text)
    assert len(drafter.draft(text, 3).tokens) == 3
