"""What would be taken, told without loading anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.engine.tiny_models import path_of
from turbodflash_engine import devices
from turbodflash_engine.errors import BadUsage, DoesNotFit, Unknown
from turbodflash_engine.loading import load
from turbodflash_engine.options import LoadOptions, SpecOptions
from turbodflash_engine.planner import Card, Planned, plan_files

GIB = 2**30


def options(draft: str = "", **changes: Any) -> LoadOptions:
    spec = SpecOptions(model=path_of(draft)) if draft else None
    return LoadOptions(path_of("qwen3"), device="reference", spec=spec, **changes)


def total(found: Planned, place: str = "host", owner: str = "model") -> int:
    return sum(s.nbytes for s in found.shares if (s.place, s.owner) == (place, owner))


def test_the_plan_is_what_loading_then_says() -> None:
    asked = options("dflash--qwen3", context=256)
    found, loaded = plan_files(asked), load(asked)
    assert loaded.info.draft is not None
    assert total(found) == sum(loaded.info.memory)
    assert total(found, owner="draft") == sum(loaded.info.draft.memory)
    assert (found.context, found.trained_context) == (256, loaded.info.trained_context)
    assert found.fits
    assert found.missing == {"host": 0, "card": 0}
    assert found.changes == ()


def test_every_part_is_named() -> None:
    kinds = {(s.owner, s.kind) for s in plan_files(options("dflash--qwen3")).shares}
    matrices = {"embedding", "attention", "mlp", "other"}
    assert {("model", kind) for kind in matrices} <= kinds
    assert {("draft", kind) for kind in matrices - {"embedding"}} <= kinds
    assert {("model", "process"), ("model", "scratch"), ("draft", "cache: all positions")} <= kinds


def test_smaller_types_and_shorter_contexts_cost_less() -> None:
    def cache(**changes: Any) -> int:
        shares = plan_files(options(**changes)).shares
        return sum(s.nbytes for s in shares if s.kind.startswith("cache"))

    half = cache(context=1024)
    assert cache(context=512) * 2 == half
    assert cache(context=1024, cache_type_k="f32") == 1.5 * half


def test_what_does_not_fit_is_told_and_not_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    free = total(plan_files(options(context=512))) + 1000
    monkeypatch.setattr(devices, "free_bytes", lambda: free)
    found = plan_files(options(context=2048))
    assert not found.fits
    assert found.missing["host"] == total(found) - free
    assert found.largest_context == 512
    assert "-c 512" in found.changes
    assert plan_files(options(context=512)).fits


def test_what_is_planned_to_fit_is_loaded_and_the_rest_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    free = total(plan_files(options(context=512))) + 1000
    monkeypatch.setattr(devices, "free_bytes", lambda: free)
    assert load(options(warmup=False)).info.context == plan_files(options()).context == 512
    with pytest.raises(DoesNotFit):
        load(options(fit=False))
    assert not plan_files(options(fit=False)).fits


def test_a_card_takes_what_fits_it() -> None:
    all_of_it = plan_files(options(context=256, gpu_layers=99), Card("some", GIB))
    assert all_of_it.gpu_layers == all_of_it.layers + 1
    assert {s.kind for s in all_of_it.shares if s.place == "host"} == {"process"}
    none = plan_files(options(context=256), Card("some", 0))
    assert none.gpu_layers == 0
    refused = plan_files(options(context=256, gpu_layers=2), Card("some", 0))
    assert refused.missing["card"] > 0
    assert refused.changes == ("-ngl 0",)


def test_a_draft_on_another_device_has_copies_of_the_tables_it_borrows() -> None:
    def planned(layers: int) -> Planned:
        asked = options("dflash--qwen3", context=256, gpu_layers=layers)
        return plan_files(asked, Card("some", GIB))

    together = planned(99)
    assert not [s for s in together.shares if s.owner == "draft" and s.kind == "embedding"]
    apart = planned(1)
    assert total(apart, "card", "draft") > 0


def test_bad_input_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unknown, match="no cache type named 'q3_0'"):
        plan_files(options(cache_type_k="q3_0"))
    with pytest.raises(BadUsage):
        plan_files(LoadOptions(tmp_path / "missing.gguf"))
