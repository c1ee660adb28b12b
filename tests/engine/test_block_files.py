"""Files of block drafts: dialects, what is refused and in which words, and rarer tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from tests.engine.block_drafts import (
    BONUS,
    PAIRS,
    SPARK,
    TEXT,
    V1,
    V2,
    Logits,
    built,
    ids,
    values_of,
    variant,
)
from tests.engine.spec_runs import read_prompt
from tests.engine.tiny_models import Made, made, tiny
from turbodflash_engine import plugins
from turbodflash_engine.drafters._block.config import read_block
from turbodflash_engine.drafters._block.drafter import BlockDrafter
from turbodflash_engine.errors import BadModel, BadUsage, TurbodflashError
from turbodflash_engine.models._base import Model
from turbodflash_kernels.device import Device, open_device

SHORT = TEXT[:30]
RNG = np.random.default_rng(7)


@pytest.fixture(scope="module")
def plain() -> tuple[Model, Device]:
    """Where nothing is computed."""
    device = open_device("reference")
    return tiny("qwen3", device), device


def logits_of(drafter: BlockDrafter, target: Model, device: Device) -> Any:
    target.cache.truncate(0)
    logits = Logits(drafter, device)
    read_prompt(target, drafter, SHORT)
    return logits(SHORT)


# --- dialects -------------------------------------------------------------------------------------

EARLY = {
    "dflash.target_layers": "dflash.target_layer_ids",
    "tokenizer.ggml.mask_token_id": "dflash.mask_token_id",
    "enc.output_norm": "hidden_norm",
}
FORK = {
    "dflash.target_layers": "dflash.dflash.target_layer_ids",
    "dflash.block_size": "dflash.dflash.block_size",
    "tokenizer.ggml.mask_token_id": "dflash.dflash.mask_token_id",
    "dflash.": "dflash-draft.",
    "fc.": "dflash_fc.",
    "enc.output_norm": "dflash_hidden_norm",
}


@pytest.mark.parametrize("pair", [V1, SPARK])
@pytest.mark.parametrize(
    ("keys", "renamed"),
    [
        ({}, EARLY),
        (
            {"general.architecture": "dflash-draft", "dflash.target_layers": np.array([0, 2, 4])},
            FORK,
        ),
    ],
)
def test_dialects_say_the_same(
    pair: str,
    keys: Mapping[str, object],
    renamed: Mapping[str, str],
    target: Model,
    device: Device,
) -> None:
    expected = logits_of(built(pair, target, device), target, device)
    drafter = built(variant(pair, keys, renamed=renamed), target, device)
    assert drafter.taps == (1, 3, 5)
    np.testing.assert_array_equal(logits_of(drafter, target, device), expected)


@pytest.mark.parametrize(
    ("pair", "kind"), [(pair, "dspark" if "spark" in pair else "dflash") for pair in PAIRS]
)
def test_a_file_says_what_it_is(pair: str, kind: str) -> None:
    metadata, infos = variant(pair)
    claimed = [
        n for n in ("dflash", "dspark") if plugins.find("drafters", n).claims(metadata, infos)
    ]
    assert claimed == [kind]


def test_a_block_is_sixteen_tokens_unless_the_file_says() -> None:
    assert read_block(variant(V1, without=["dflash.block_size"])[0]).block == 16
    assert read_block(variant(V1)[0]).block == 8


@pytest.mark.parametrize(
    ("pair", "n_max", "longest"),
    [
        *((V1, None, 7), (V1, 3, 3), (V1, 99, 7), (V1, 0, 0), (V2, 99, 7)),
        *((SPARK, None, 8), (SPARK, 99, 8), (BONUS, None, 7), (BONUS, 2, 2)),
    ],
)
def test_the_longest_draft_is_what_was_trained_or_less(
    pair: str, n_max: int | None, longest: int, plain: tuple[Model, Device]
) -> None:
    drafter = built(pair, *plain, n_max=n_max)
    assert drafter.longest == longest
    assert len(drafter.draft([1], 99).tokens) == longest


# --- refusals -------------------------------------------------------------------------------------


def refused(
    plain: tuple[Model, Device],
    match: str,
    *file: Any,
    error: type[TurbodflashError] = BadModel,
    **more: Any,
) -> None:
    options = more.pop("options", {})
    with pytest.raises(error, match=match):
        built(variant(*file, **more), *plain, **options)


@pytest.mark.parametrize(
    ("keys", "match"),
    [
        ({"dflash.target_layers": np.array([1, 3, 6])}, r"has the layer 6, which is the output of"),
        ({"dflash.target_layers": np.array([1, 3, 7])}, r"has the layer 7, which is no layer"),
        ({"dflash.target_layers": np.array([-1, 3, 5])}, r"has the layer -1, which is no layer"),
        ({"dflash.target_layers": np.array([], np.int32)}, r"looks at no layer"),
        ({"tokenizer.ggml.mask_token_id": 512}, r"has the mask token 512, expected one of its 512"),
        ({"dflash.embedding_length": 128}, r"for a model of width 128, but this one has width 64"),
        ({"dflash.hidden_activation": "relu"}, r"is 'relu', expected one of: silu, gelu, gelu_py"),
        ({"dflash.attention.value_scale": 0.5}, r"value_scale' is set, which is not supported yet"),
        ({"dflash.hyper_connection.count": 4}, r"4 hyper-connected residual streams"),
        ({"dflash.conv_kernel_size": 3}, r"DFlash2 draft without 'dflash.conv_group_size', 'dfla"),
        ({"dflash.attention.sliding_window": 12}, r"no metadata key '.*sliding_window_pattern'"),
        ({"dflash.block_size": 0}, r"block_size' is 0, expected 1 to 256"),
        ({"dflash.block_count": 0}, r"block_count' is 0, expected 1 to"),
        ({"dflash.attention.value_length": 16}, r"heads of 32 for keys and 16 for values"),
        ({"dflash.rope.dimension_count": 7}, r"dimension_count' is 7, expected whole pairs"),
        ({"dflash.rope.dimension_count": 64}, r"dimension_count' is 64, expected 1 to 32"),
        ({"dflash.attention.head_count_kv": 3}, r"4 query heads over 3 key heads"),
    ],
)
def test_metadata_that_does_not_fit_is_refused(
    keys: dict[str, object], match: str, plain: tuple[Model, Device]
) -> None:
    refused(plain, match, V1, keys)


@pytest.mark.parametrize(
    ("key", "match"),
    [
        ("tokenizer.ggml.mask_token_id", r"no mask token \(metadata key 'tokenizer.ggml.mask_tok"),
        ("dflash.target_layers", r"has none of the metadata keys 'dflash.target_layers', 'dflash"),
        ("dflash.block_count", r"no metadata key 'dflash.block_count'"),
        ("dflash.attention.layer_norm_rms_epsilon", r"no metadata key '.*rms_epsilon'"),
    ],
)
def test_metadata_that_is_missing_is_named(
    key: str, match: str, plain: tuple[Model, Device]
) -> None:
    refused(plain, match, V1, without=[key])


@pytest.mark.parametrize("key", ["block_size", "conv_kernel_size", "conv_group_size"])
def test_a_dflash2_needs_all_its_keys(key: str, plain: tuple[Model, Device]) -> None:
    refused(plain, f"DFlash2 draft without 'dflash.{key}'", V2, without=[f"dflash.{key}"])


def test_channels_come_in_whole_groups(plain: tuple[Model, Device]) -> None:
    refused(plain, "expected whole groups of 48 channels", V2, {"dflash.conv_group_size": 48})


def zeros(name: str, *shape: int) -> Made:
    return made(name, np.zeros(shape, np.float32))


@pytest.mark.parametrize(
    ("pair", "tensors", "without", "match"),
    [
        (V1, [], ["blk.1.attn_v.weight"], "has no tensor 'blk.1.attn_v.weight'"),
        (V1, [zeros("blk.0.post_ffw_norm.weight", 9)], [], r"has the shape \[9\], expected \[64"),
        (V2, [zeros("blk.0.post_ffw_norm.weight", 64)], [], "has more than this architecture us"),
        (V1, [zeros("blk.0.layer_output_scale.weight", 2)], [], r"has the shape \[2\], expected"),
        (V1, [zeros("selector_hidden.weight", 24, 64)], [], "'selector_hidden.weight' of a DFlas"),
        (V1, [ids("d2t", range(384))], [], "'d2t' names 384 tokens for a head of 512 rows"),
        (V1, [ids("d2t", [*range(511), 512])], [], "tokens from 0 to 512, expected 0 to 511"),
        (V1, [ids("d2t", [*range(511), 7])], [], "expected 0 to 511, each at most once"),
        (V1, [zeros("token_embd.weight", 500, 64)], [], "has 500 rows, fewer than there are"),
        (V1, [], ["fc.weight"], "has no tensor 'fc.weight'"),
        (V1, [zeros("blk.0.attn_q.bias", 128)], [], "has more than this architecture uses"),
        (
            SPARK,
            [zeros("markov_w2.weight", 512, 16)],
            [],
            r"has the shape \[16, 512\], expected \[",
        ),
        (SPARK, [zeros("conf_proj.weight", 1, 64)], [], r"has the shape \[64, 1\], expected \[96"),
        (SPARK, [zeros("markov_w1.weight", 500, 32)], [], "has 500 rows, fewer than there are"),
        (V2, [zeros("selector_successor.weight", 9, 24)], [], "has 9 rows, fewer than there are"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(
    pair: str, tensors: Sequence[Made], without: list[str], match: str, plain: tuple[Model, Device]
) -> None:
    refused(plain, match, pair, None, tensors, without=without)


def test_a_mask_beyond_the_models_embeddings_needs_its_own(plain: tuple[Model, Device]) -> None:
    words = [*(f"w{index}" for index in range(513))]
    keys = {"tokenizer.ggml.tokens": words, "tokenizer.ggml.mask_token_id": 512}
    refused(
        plain, "mask token 512, but its embeddings, which are the model's, end at 511", V1, keys
    )
    own = made("token_embd.weight", RNG.standard_normal((513, 64)).astype(np.float32))
    assert built(variant(V1, keys, [own]), *plain).longest == 7


def test_rows_of_a_head_that_are_no_tokens_have_marks_as_well(plain: tuple[Model, Device]) -> None:
    head, w2 = values_of("qwen3", "output.weight"), values_of(SPARK, "markov_w2.weight")
    longer = [
        made("output.weight", np.concatenate([head, head[:64]])),
        made("markov_w2.weight", np.concatenate([w2, w2[:64]])),
    ]
    refused(plain, "'markov_w1.weight' has 512 rows, fewer than there are tok", SPARK, None, longer)
    w1 = values_of(SPARK, "markov_w1.weight")
    longer.append(made("markov_w1.weight", np.concatenate([w1, w1[:64]])))
    assert built(variant(SPARK, None, longer), *plain).longest == 8


def test_candidates_are_few(plain: tuple[Model, Device]) -> None:
    refused(plain, "selector_top_k' is 500, expected 1 to 64", V2, {"dflash.selector_top_k": 500})


def test_markov_and_selector_do_not_go_together(plain: tuple[Model, Device]) -> None:
    both = dict.fromkeys(("conv_kernel_size", "selector_rank", "selector_top_k"), 3)
    keys = {f"dflash.{key}": value for key, value in both.items()} | {"dflash.conv_group_size": 16}
    refused(plain, "metadata of a DFlash2 draft, but a Markov head", SPARK, keys)


@pytest.mark.parametrize(
    "changes",
    [
        {"keys": {"dflash.has_confidence_head": False}},
        {"without": ["conf_proj.weight", "conf_proj.bias"]},
    ],
)
def test_a_draft_without_confidence_has_no_p_min(
    changes: dict[str, Any], plain: tuple[Model, Device]
) -> None:
    file = variant(SPARK, **changes)
    built(file, *plain)
    with pytest.raises(BadUsage, match=r"no confidence head.* less sure than 0\.3") as refusal:
        built(file, *plain, p_min=0.3)
    assert "--spec-draft-p-min 0" in str(refusal.value.hint)


# --- rarer tensors and keys -----------------------------------------------------------------------


def test_own_tables_are_used_instead_of_the_models(target: Model, device: Device) -> None:
    table, head = (values_of("qwen3", name) for name in ("token_embd.weight", "output.weight"))
    expected = logits_of(built(V1, target, device), target, device)
    own = [made("token_embd.weight", table / 2), made("output.weight", head * 4)]
    file = variant(V1, {"dflash.embedding_scale": 2.0}, own)
    found = logits_of(built(file, target, device), target, device)
    np.testing.assert_allclose(found, 4 * expected, rtol=1e-5, atol=1e-4)


def test_an_own_table_without_a_head_is_the_head(target: Model, device: Device) -> None:
    table = values_of("qwen3", "token_embd.weight")
    tied = variant(V1, None, [made("token_embd.weight", table)])
    apart = variant(V1, None, [made("token_embd.weight", table), made("output.weight", table)])
    expected = logits_of(built(apart, target, device), target, device)
    np.testing.assert_array_equal(logits_of(built(tied, target, device), target, device), expected)


def test_sinks_take_their_share(target: Model, device: Device) -> None:
    def with_sinks(value: float) -> Any:
        sinks = [made(f"blk.{i}.attn_sinks.weight", np.full(4, value, "f4")) for i in range(2)]
        return logits_of(built(variant(V1, None, sinks), target, device), target, device)

    expected = logits_of(built(V1, target, device), target, device)
    np.testing.assert_allclose(with_sinks(-80.0), expected, rtol=0, atol=1e-5)
    assert np.abs(with_sinks(3.0) - expected).max() > 0.1


def test_divisors_turn_pairs_more_slowly_unless_positions_have_sections(
    target: Model, device: Device
) -> None:
    divisors = [made("rope_freqs.weight", np.full(16, 8, "f4"))]
    slower = variant(V1, {"dflash.rope.scaling.factor": 8.0})
    divided = variant(V1, None, divisors)
    sections = {"dflash.rope.dimension_sections": np.array([16, 0, 0, 0])}
    found = [
        logits_of(built(file, target, device), target, device)
        for file in (slower, divided, variant(V1, sections, divisors), variant(V1))
    ]
    np.testing.assert_allclose(found[0], found[1], rtol=0, atol=1e-4)
    np.testing.assert_array_equal(found[2], found[3])
    assert np.abs(found[1] - found[3]).max() > 0.1


def test_the_scale_of_products_is_that_of_the_file(target: Model, device: Device) -> None:
    expected = logits_of(built(V1, target, device), target, device)
    said, other = (
        logits_of(
            built(variant(V1, {"dflash.attention.scale": scale}), target, device), target, device
        )
        for scale in (32**-0.5, 1.0)
    )
    np.testing.assert_allclose(said, expected, rtol=0, atol=1e-5)
    assert np.abs(other - expected).max() > 0.1
