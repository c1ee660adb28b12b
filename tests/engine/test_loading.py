"""From a file to a model that answers, and every reason why not."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from tests.engine.tiny_models import golden, path_of, tensors_of
from turbodflash_engine import devices
from turbodflash_engine.errors import BadModel, BadUsage, DoesNotFit, Unknown
from turbodflash_engine.events import Progress
from turbodflash_engine.loading import load
from turbodflash_engine.options import LoadOptions


def options(path: Path | None = None, **changes: Any) -> LoadOptions:
    asked = LoadOptions(path or path_of("llama"), context=256, device="reference")
    return replace(asked, **changes)


def rewritten(tmp_path: Path, architecture: str = "llama", **keys: str) -> Path:
    """A file with one tensor, and metadata of the tiny kind."""
    path = tmp_path / "other.gguf"
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in keys.items():
        writer.add_string(key.replace("__", "."), value)
    writer.add_tensor("token_embd.weight", np.zeros((4, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("name", ["llama", "qwen3moe"])
def test_what_a_token_costs(name: str) -> None:
    """Of an expert's matrices, which are all of one size, a token multiplies two of eight."""
    _, tensors = tensors_of(name)
    layers = {name: info for name, info in tensors.items() if name.startswith("blk.")}
    macs = sum(
        info.shape[-1] // 4 * info.shape[0] * info.shape[1] if "_exps" in name else prod(info.shape)
        for name, info in layers.items()
    )
    ends = sum(prod(tensors[name].shape) for name in ("output.weight", "output_norm.weight"))
    token = load(options(path_of(name))).info.token
    rope = tensors["rope_freqs.weight"].shape[0] if "rope_freqs.weight" in tensors else 0
    norm = tensors["output_norm.weight"].shape[0]
    assert token.macs == macs + norm + rope
    assert token.nbytes == 4 * (macs + ends + rope)


def test_what_is_known_of_a_loaded_model() -> None:
    loaded = load(options(cache_type_v="f32"))
    info, path = loaded.info, path_of("llama")
    assert (info.name, info.architecture, info.file_type) == ("tiny-llama", "llama", "F32")
    assert (info.path, info.file_bytes) == (path, path.stat().st_size)
    assert (info.layers, info.context, info.trained_context) == (4, 256, 2048)
    assert (info.cache_type_k, info.cache_type_v) == ("f16", "f32")
    assert info.device == "reference float32"
    assert info.has_template
    assert info.memory.cache == loaded.model.cache.nbytes == 256 * 4 * 32 * (2 + 4)
    assert info.memory.weights == 4 * info.parameters
    assert loaded.tokenizer.vocab_size == loaded.model.vocabulary == 512


@pytest.mark.parametrize("device", ["reference", "cpu"])
@pytest.mark.parametrize(
    ("k", "v", "protect"), [("q8_0", "turbo4", "none"), ("turbo3", "turbo3", "auto")]
)
def test_a_cache_of_any_types_takes_what_was_planned(
    device: str, k: str, v: str, protect: str
) -> None:
    loaded = load(options(cache_type_k=k, cache_type_v=v, kv_protect=protect, device=device))
    info = loaded.info
    assert info.memory.cache == loaded.model.cache.nbytes == 256 * info.cache_row_bytes
    assert (info.cache_type_k, info.cache_type_v, info.cache_rotated) == (k, v, False)
    assert any(f"{v} fills heads of 16 numbers up to 128" in note for note in info.notes)


def test_ends_that_are_kept_show_in_the_types() -> None:
    info = load(options(path_of("qwen3"), cache_type_v="turbo2", kv_protect="boundary")).info
    assert info.cache_type_v == "turbo2"
    assert any("of 6 attention layers none are kept apart" in note for note in info.notes)


def test_heads_that_cannot_be_rotated_stop_loading_with_their_layer() -> None:
    with pytest.raises(BadUsage, match="layer 0 cannot be stored as asked: heads of 16 numbers"):
        load(options(cache_type_k="q4_0", kv_rotate="on"))


def test_a_loaded_model_is_warm_and_empty() -> None:
    recorded = golden("llama")
    model = load(options(cache_type_k="f32", cache_type_v="f32")).model
    assert model.cache.length == 0
    logits = model([int(token) for token in recorded["tokens"]]).logits[0]
    assert np.abs(logits - recorded["logits"][-1]).max() <= recorded["atol"]


def test_progress_counts_the_bytes_of_the_file() -> None:
    events: list[Progress] = []
    load(options(path_of("llama-q-q4_1")), events.append)
    done = [event.done for event in events]
    assert {(event.stage, event.unit) for event in events} == {("loading", "bytes")}
    assert done == sorted(done)
    assert {event.total for event in events} == {done[-1]}
    assert len(done) <= 102


def test_the_trained_context_is_the_default() -> None:
    loaded = load(options(context=0))
    assert loaded.info.context == loaded.model.cache.capacity == 2048


def test_a_model_that_does_not_fit_is_refused_before_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events: list[Progress] = []
    monkeypatch.setattr(devices, "free_bytes", lambda: 1000)
    with pytest.raises(DoesNotFit):
        load(options(), events.append)
    assert events == []


def test_an_unknown_cache_type_is_named() -> None:
    with pytest.raises(Unknown, match="no cache type named 'q3_0'"):
        load(options(cache_type_k="q3_0"))


def test_an_unknown_architecture_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadModel, match="architecture 'llamx' is not supported") as caught:
        load(options(rewritten(tmp_path, "llamx")))
    assert "llama" in caught.value.hint


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadModel, match=r"no metadata key 'llama.block_count'"):
        load(options(rewritten(tmp_path)))


def test_rope_options_reach_the_model() -> None:
    tokens = [int(token) for token in golden("llama")["tokens"]]
    plain, scaled, by_factor = (
        load(options(**changes)).model(tokens).logits.copy()
        for changes in ({}, {"rope_freq_scale": 0.5}, {"rope_scale": 2.0})
    )
    np.testing.assert_array_equal(scaled, by_factor)
    assert not np.array_equal(scaled, plain)


def test_the_template_is_the_one_asked_for() -> None:
    messages = [{"role": "user", "content": "hi"}]
    own = load(options()).template.render(messages)
    assert own == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    given = load(options(chat_template="{{ messages[0].content }}!")).template
    assert given.render(messages) == "hi!"
    with pytest.raises(Unknown, match="no chat template named 'chatmx'"):
        load(options(chat_template="chatmx"))
