"""A model reads a text: the numbers are those of its logits, and a base fits or says why not."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engine.tiny_models import path_of
from turbodflash_engine import (
    BadUsage,
    LoadOptions,
    Perplexity,
    PerplexityOptions,
    Progress,
    TurbodflashError,
    measure_perplexity,
    sweep_cache_types,
)
from turbodflash_engine.loading import load
from turbodflash_engine.perplexity.reading import Silent, read_windows
from turbodflash_engine.perplexity.windows import Shape, Windows, cut

TEXT = "The quick brown fox jumps over the lazy dog. " * 20
CHUNKS = PerplexityOptions(context=32)


def options(name: str = "llama", device: str = "cpu", **more: Any) -> LoadOptions:
    return LoadOptions(path_of(name), device=device, warmup=False, **more)


def measure(asked: PerplexityOptions = CHUNKS, text: str | None = TEXT, **more: Any) -> Perplexity:
    return measure_perplexity(options(**more), text, asked)


@pytest.mark.parametrize("device", ["reference", "cpu"])
@pytest.mark.parametrize("stride", [0, 6])
def test_a_perplexity_is_that_of_the_models_logits(device: str, stride: int) -> None:
    found = measure(PerplexityOptions(context=32, stride=stride, chunks=3), device=device)

    loaded = load(options(device=device, context=64))
    tokenizer = loaded.tokenizer
    tokens = tokenizer.encode(TEXT, add_special=True, parse_special=False)
    assert tokenizer.add_bos
    nll: list[float] = []
    running = []
    for window in range(3):
        loaded.model.cache.truncate(0)
        start, length = (window * stride, 35) if stride else (window * 32, 32)
        first = length - 1 - stride if stride else 16
        run = [tokenizer.bos_id, *tokens[start + 1 : start + length]]
        logits = loaded.model(run, logits=length).logits.astype(np.float64)
        for row in range(first, length - 1):
            nll.append(np.log(np.exp(logits[row]).sum()) - logits[row, run[row + 1]])
        running.append(float(np.exp(np.mean(nll))))
    assert found.running == pytest.approx(running, rel=1e-6)
    assert found.ppl.value == pytest.approx(running[-1], rel=1e-6)
    assert (found.chunks, found.scored, found.context, found.stride) == (3, len(nll), 32, stride)


def test_the_size_of_passes_changes_no_bit() -> None:
    whole = measure()
    assert whole.chunks > 3
    for ubatch in (1, 7, 16):
        assert measure(ubatch=ubatch).running == whole.running


def test_progress_tells_the_perplexity_so_far() -> None:
    told: list[Progress] = []
    found = measure_perplexity(options(), TEXT, CHUNKS, told.append)
    steps = [each for each in told if each.stage == "perplexity"]
    assert {each.total for each in steps} == {found.tokens} == {32 * found.chunks}
    done = [each.done for each in steps]
    assert done == sorted(done)
    assert len(done) > found.chunks + 1
    notes = [each.note for each in steps if each.done % 32 == 0]
    assert notes == ["", *(f"PPL {value:.4f}" for value in found.running)]


def test_a_context_of_nothing_is_the_trained_one() -> None:
    found = measure(PerplexityOptions(context=0, stride=10, chunks=1), text=TEXT * 30)
    assert (found.context, found.tokens) == (2048 - 5, 2048)


class TestBase:
    @pytest.fixture
    def base(self, tmp_path: Path) -> Path:
        measure(PerplexityOptions(context=32, save=tmp_path / "base"))
        return tmp_path / "base"

    def against(self, base: Path, **more: Any) -> PerplexityOptions:
        return PerplexityOptions(against=base, **more)

    @pytest.mark.parametrize("text", [None, TEXT])
    def test_the_same_model_has_not_moved(self, base: Path, text: str | None) -> None:
        found = measure(self.against(base), text)
        told = found.divergence
        assert told is not None
        assert found.ppl == told.ppl
        assert told.kld_quantiles[1.0] < 1e-5
        assert told.same_top == (1.0, 0.0)
        assert told.ratio.value == pytest.approx(1, abs=1e-6)
        assert told.rms_delta_p.value == pytest.approx(0, abs=1e-6)

    def test_another_model_of_the_vocabulary_has_moved(self, base: Path) -> None:
        found = measure(self.against(base, chunks=2), None, cache_type_k="f32")
        told = found.divergence
        assert told is not None
        assert 0 < told.kld.value < 0.01
        assert (found.chunks, found.context) == (2, 32)

    @pytest.mark.parametrize(
        ("more", "text", "says"),
        [
            ({"context": 16}, TEXT, "was written with a context of 32, not 16"),
            ({"stride": 4}, TEXT, "was written with a stride of 0, not 4"),
            ({"chunks": 1000}, TEXT, "chunks, not 1000"),
            ({}, TEXT.upper(), "was written for another text"),
            ({}, TEXT[:300], "was written for another text"),
        ],
    )
    def test_what_does_not_fit(
        self, base: Path, more: dict[str, Any], text: str, says: str
    ) -> None:
        with pytest.raises(BadUsage, match=says):
            measure(self.against(base, **more), text)

    def test_a_model_with_another_vocabulary(self, base: Path) -> None:
        contents = base.read_bytes()
        at = contents.index(b'"vocabulary_hash": "') + 20
        base.write_bytes(contents[:at] + b"." + contents[at + 1 :])
        with pytest.raises(BadUsage, match=r"of a model with another vocabulary: tiny-llama, "):
            measure(self.against(base), None)


class TestSweep:
    def test_a_row_for_each_type_against_f16(self) -> None:
        types = [("f32", "f32"), ("f16", "f16"), ("f32", "f32"), ("f16", "q7_7")]
        told: list[Progress] = []
        rows = sweep_cache_types(options(), TEXT, CHUNKS, types, told.append)
        assert [row.name for row in rows] == ["f16", "f32", "f16/q7_7"]
        base, found, refused = rows
        assert base.found is not None
        assert found.found is not None
        assert base.found.divergence is None
        assert found.found.divergence is not None
        assert found.found.cache_bytes_per_token == 2 * base.found.cache_bytes_per_token
        assert found.found.divergence.ppl_base.value == pytest.approx(
            base.found.ppl.value, rel=1e-6
        )
        assert refused.found is None
        assert "q7_7" in refused.refused
        assert {"perplexity f16", "perplexity f32"} <= {each.stage for each in told}

    def test_one_model_is_in_memory_at_a_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        alive: list[weakref.ref[Any]] = []

        def load_one(*asked: Any) -> Any:
            assert not [each for each in alive if each()]
            loaded = load(*asked)
            alive.append(weakref.ref(loaded.model))
            return loaded

        monkeypatch.setattr("turbodflash_engine.perplexity.measure.load", load_one)
        sweep_cache_types(options(), TEXT, replace(CHUNKS, chunks=1), [("f32", "f32")] * 2)
        assert len(alive) == 2

    def test_what_stops_f16_stops_all(self) -> None:
        with pytest.raises(BadUsage, match=r"the text has .* tokens; one chunk has 512"):
            sweep_cache_types(options(), "Hello", replace(CHUNKS, context=512), [("f32", "f32")])


class Broken:
    """A model whose logits are no numbers."""

    def __init__(self) -> None:
        self.cache, self.vocabulary = self, 5

    def truncate(self, length: int) -> None: ...

    def __call__(self, tokens: Sequence[int], logits: int = 1) -> Any:
        self.logits = np.full((logits, 5), np.nan, np.float32)
        return self


def test_logits_that_are_no_numbers_are_an_error() -> None:
    windows: Windows = cut([1] * 16, Shape(8))
    model: Any = Broken()
    with pytest.raises(TurbodflashError, match="logits are not numbers in chunk 1"):
        read_windows(model, windows, Silent())


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"chunks": 0}, "0 chunks are no text"),
        ({"save": Path("a"), "against": Path("b")}, "not both at once"),
    ],
)
def test_options_that_cannot_be(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(BadUsage, match=says):
        PerplexityOptions(**asked)


def test_no_text_and_no_base() -> None:
    with pytest.raises(BadUsage, match="there is no text to read"):
        measure(text=None)
