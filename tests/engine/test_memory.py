"""The plan of memory before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from turbodflash_engine import memory
from turbodflash_engine.errors import DoesNotFit
from turbodflash_engine.memory import Plan, free_bytes, plan_memory

GIB = 2**30


@dataclass(frozen=True)
class Sizes:
    context: int = 8192
    vocabulary: int = 1000
    kv_values: tuple[int, int] = (512, 512)
    scratch_values: int = 4096


def plan(context: int = 0, free: int | None = None, sizes: Sizes | None = None) -> Plan:
    return plan_memory(
        sizes or Sizes(), weights=GIB, kv_bytes=(2.0, 4.0), context=context, rows=512, free=free
    )


SCRATCH = 4 * 512 * 4096 + 4 * 1000
PER_POSITION = 512 * (2 + 4)


@pytest.mark.parametrize(
    ("asked", "planned"), [(0, 8192), (1, 256), (256, 256), (257, 512), (4000, 4096), (8192, 8192)]
)
def test_a_context_is_rounded_up_to_whole_steps(asked: int, planned: int) -> None:
    found = plan(asked)
    assert found.context == planned
    assert found.memory.weights == GIB
    assert found.memory.cache == planned * PER_POSITION
    assert found.memory.scratch == SCRATCH
    assert found.notes == ()


def test_a_context_beyond_the_trained_one_is_noted() -> None:
    found = plan(9000)
    assert found.context == 9216
    assert found.notes == (
        "a context of 9,000 tokens is beyond the 8,192 that the model was trained on; "
        "quality may drop",
    )


def test_the_trained_context_is_cut_to_what_fits() -> None:
    room = GIB + SCRATCH + 5000 * PER_POSITION
    found = plan(0, room)
    assert found.context == 4864
    assert found.notes == ("the context is 4,864 tokens, not 8,192: more does not fit memory",)
    assert sum((found.memory.weights, found.memory.cache, found.memory.scratch)) <= room


def test_a_context_that_was_asked_for_is_not_cut() -> None:
    with pytest.raises(DoesNotFit) as caught:
        plan(1_000_000, 2 * GIB)
    assert str(caught.value) == (
        "a context of 1,000,000 tokens needs 2.9 GiB for its keys and values; "
        "there is room for 1.0 GiB"
    )
    fits = int(caught.value.hint.split()[1])
    assert plan(fits, 2 * GIB).context == fits
    with pytest.raises(DoesNotFit):
        plan(fits + 1, 2 * GIB)


@pytest.mark.parametrize("context", [0, 256])
def test_a_model_that_does_not_fit_at_all_says_so(context: int) -> None:
    with pytest.raises(DoesNotFit, match=r"needs 1.0 GiB of memory; 0.5 GiB are free"):
        plan(context, GIB // 2)


def test_free_memory_is_known_and_less_than_all() -> None:
    free = free_bytes()
    assert free is None or 0 < free < 2**50


def test_a_control_group_limits_what_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "GROUPS", tmp_path)
    monkeypatch.setattr(memory, "_system_free", lambda: 10_000)
    assert free_bytes() == 10_000
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("3000\n")
    assert free_bytes() == 2000
    (tmp_path / "memory.stat").write_text("anon 7\nactive_file 100\ninactive_file 500\n")
    assert free_bytes() == 2500
    (tmp_path / "memory.max").write_text("max\n")
    assert free_bytes() == 10_000
