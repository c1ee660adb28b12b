"""Laws of every architecture, on its tiny model; a new file in models/ is found by itself."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.engine.tiny_models import all_rows, build, golden, made, path_of, tensors_of, tiny
from tests.kernels.devices import PRESENT
from turbodflash_engine import plugins
from turbodflash_engine.errors import BadModel, DoesNotFit
from turbodflash_engine.loading import load
from turbodflash_engine.models._base import Architecture, Model
from turbodflash_engine.options import LoadOptions
from turbodflash_kernels.device import open_device

ARCHITECTURES = plugins.names("models")
ON_EVERY_DEVICE = [(name, device) for name in ARCHITECTURES for device in PRESENT]

every_model = pytest.mark.parametrize("name", ARCHITECTURES)
every_model_and_device = pytest.mark.parametrize(("name", "device"), ON_EVERY_DEVICE)


def long_prompt(name: str) -> list[int]:
    return [int(token) for token in golden(name)["long_tokens"]]


def fed_in(model: Model, tokens: list[int], sizes: list[int]) -> NDArray[np.float32]:
    """Logits of all rows, the tokens fed in passes of these sizes, the last size repeated."""
    rows, start = [], 0
    while start < len(tokens):
        size = sizes.pop(0) if len(sizes) > 1 else sizes[0]
        chunk = tokens[start : start + size]
        rows.append(model(chunk, logits=len(chunk)).logits.copy())
        start += size
    return np.concatenate(rows)


@every_model
def test_a_model_file_offers_what_an_architecture_is(name: str) -> None:
    assert isinstance(plugins.find("models", name), Architecture)


@every_model_and_device
def test_a_file_loads_with_its_tokenizer(name: str, device: str) -> None:
    loaded = load(LoadOptions(path_of(name), context=256, device=device))
    recorded = golden(name)
    assert loaded.info.architecture == name
    assert loaded.tokenizer.vocab_size == loaded.model.vocabulary == recorded["logits"].shape[1]
    best = loaded.model([int(token) for token in recorded["tokens"]]).logits[0].argmax()
    assert best == recorded["greedy_tokens"][0]


SOME = [3, 1, 16, 17, 2, 40]
SIZES = {"reference": [SOME], "cpu": [[1], [7], [64], SOME]}  # the reference has no kernels by size


@pytest.mark.parametrize(
    ("device", "sizes"),
    [(device, sizes) for device in PRESENT for sizes in SIZES[device]],
    ids=str,
)
@every_model
def test_passes_of_any_size_give_the_same_bits(name: str, device: str, sizes: list[int]) -> None:
    tokens = long_prompt(name)
    whole = fed_in(tiny(name, open_device(device), "f16"), tokens, [len(tokens)])
    parts = fed_in(tiny(name, open_device(device), "f16"), tokens, list(sizes))
    np.testing.assert_array_equal(parts, whole)


@every_model_and_device
def test_a_pass_of_few_rows_is_as_many_passes_of_one(name: str, device: str) -> None:
    opened, tokens = open_device(device), long_prompt(name)[:17]
    model = tiny(name, opened, "f16")
    single = [all_rows(opened, model, [token]) for token in tokens]
    for count in range(2, 18):
        model.cache.truncate(0)
        together = all_rows(opened, model, tokens[:count])
        np.testing.assert_array_equal(together, np.concatenate(single[:count]))


@every_model_and_device
def test_logits_of_some_rows_are_those_of_all(name: str, device: str) -> None:
    model, tokens = tiny(name, open_device(device)), long_prompt(name)[:20]
    everything = model(tokens, logits=20).logits.copy()
    for count in (0, 1, 5):
        model.cache.truncate(0)
        np.testing.assert_array_equal(model(tokens, logits=count).logits, everything[20 - count :])


@every_model_and_device
def test_what_a_trial_did_not_keep_never_happened(name: str, device: str) -> None:
    tokens = long_prompt(name)
    tried, straight = (tiny(name, open_device(device)) for _ in range(2))
    for start, fed, kept in ((0, 20, 20), (20, 8, 3), (23, 5, 0), (23, 3, 3)):
        with tried.cache.trial() as trial:
            tried(tokens[start : start + kept] + tokens[100 : 100 + fed - kept])
            trial.keep(kept)
    straight(tokens[:26])
    assert tried.cache.length == straight.cache.length == 26
    np.testing.assert_array_equal(
        tried(tokens[26:30], logits=4).logits, straight(tokens[26:30], logits=4).logits
    )


@every_model_and_device
def test_a_cut_cache_continues_as_if_it_had_never_been_longer(name: str, device: str) -> None:
    tokens = long_prompt(name)
    model = tiny(name, open_device(device))
    model(tokens[:50])
    expected = model(tokens[50:60]).logits.copy()
    reached = model.cache.reach(17)
    model.cache.truncate(reached)
    model(tokens[reached:50])
    np.testing.assert_array_equal(model(tokens[50:60]).logits, expected)


@every_model
def test_a_pass_that_does_not_fit_changes_nothing(name: str) -> None:
    model = tiny(name, open_device("reference"))
    model(long_prompt(name)[:100])
    with pytest.raises(DoesNotFit, match="over 256"):
        model(long_prompt(name)[:157])
    assert model.cache.length == 100


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"tokens": []}, "there are no tokens"),
        ({"tokens": [0, -1]}, "outside of 0 to"),
        ({"tokens": [10**9]}, "outside of 0 to"),
        ({"tokens": [1, 2], "logits": 3}, "logits of 3 rows out of 2"),
        ({"tokens": [1], "taps": (0, 99)}, "not all layers"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@every_model
def test_a_wrong_call_is_refused(name: str, call: dict[str, list[int]], message: str) -> None:
    model = tiny(name, open_device("reference"))
    with pytest.raises(ValueError, match=message):
        model(**call)
    assert model.cache.length == 0


@every_model
def test_every_tensor_is_needed(name: str) -> None:
    metadata, tensors = tensors_of(name)
    device = open_device("reference")
    optional = {"output.weight", "rope_freqs.weight"}
    optional |= {key for key in tensors if key.endswith(".bias")}
    for missing in tensors.keys() - optional:
        rest = {key: info for key, info in tensors.items() if key != missing}
        with pytest.raises(BadModel, match=f"has no tensor '{missing}'"):
            build(metadata, rest, device)


@every_model
def test_a_tensor_of_another_shape_is_named(name: str) -> None:
    metadata, tensors = tensors_of(name)
    wrong = made("output_norm.weight", np.ones(5, np.float32))
    with pytest.raises(BadModel, match=r"'output_norm.weight' has the shape \[5\], expected \["):
        build(metadata, {**tensors, wrong.name: wrong}, open_device("reference"))


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["blk.0.attn_sinks.weight"], "more than this architecture uses: 'blk.0.attn_sinks.weigh"),
        (["output_norm.scale"], "rescales 'output_norm.scale'"),
        ([f"x{index}" for index in range(8)], "'x0', 'x1', 'x2', 'x3', 'x4' and 3 more"),
    ],
    ids=["unknown", "sidecar", "many"],
)
@every_model
def test_what_nothing_uses_stops_loading(name: str, extra: list[str], message: str) -> None:
    metadata, tensors = tensors_of(name)
    more = {key: made(key, np.ones(1, np.float32)) for key in extra}
    with pytest.raises(BadModel, match=message):
        build(metadata, {**tensors, **more}, open_device("reference"))
