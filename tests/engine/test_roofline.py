"""Predicted speeds: laws of the arithmetic, and the inputs of the published runs."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.tiny_models import config_of, path_of
from turbodflash_engine.errors import Unknown
from turbodflash_engine.options import LoadOptions, SpecOptions
from turbodflash_engine.quant import weight_type
from turbodflash_engine.roofline import gpu, gpus, predict_file, predict_reference_runs
from turbodflash_engine.roofline.data import read
from turbodflash_engine.roofline.described import draft_shape, injection_shape, model_shape
from turbodflash_engine.roofline.passes import (
    GRAPH_SECONDS,
    LAUNCH_SECONDS,
    Cache,
    one_pass,
    padded,
)
from turbodflash_engine.roofline.published import published_on, reference_runs
from turbodflash_engine.roofline.shapes import Experts, Shape

MODELS = read("models")
DENSE, MIXED = ("qwen3.6-27b", "gemma-4-31b"), ("qwen3.6-35b-a3b", "gemma-4-26b-a4b")
CARD = gpu("rtx5090")
Q8 = Cache("q8_0", "q8_0")

depths = st.integers(0, 100_000)
rows = st.integers(1, 64)
names = st.sampled_from(sorted(MODELS))


def shape(name: str, matrices: str = "Q5_K") -> Shape:
    return model_shape(MODELS[name], matrices=matrices, head="Q6_K")


@pytest.mark.parametrize(
    ("name", "billions", "active"),
    [
        ("qwen3.6-27b", 26.9, 25.6),
        ("qwen3.6-35b-a3b", 34.7, 2.9),
        ("gemma-4-31b", 30.7, 30.7),
        ("gemma-4-26b-a4b", 25.2, 3.8),
    ],
)
def test_the_described_models_have_the_parameters_that_their_names_say(
    name: str, billions: float, active: float
) -> None:
    found = shape(name)
    assert found.numbers / 1e9 == pytest.approx(billions, abs=0.06)
    assert found.active / 1e9 == pytest.approx(active, abs=0.06)


def test_the_cache_of_a_described_model_is_what_its_heads_are() -> None:
    full = sum(Q8.per_position(each) for each in shape("qwen3.6-27b").attending)
    assert full == 16 * 4 * 2 * 256 * 34 / 32
    sliding = [each for each in shape("gemma-4-31b").attending if each.window]
    assert [(each.layers, each.seen(500), each.seen(5000)) for each in sliding] == [(50, 500, 1024)]


@given(names, rows, depths, depths)
def test_more_context_never_costs_less(name: str, count: int, first: int, second: int) -> None:
    low, high = sorted((first, second))
    less, more = (one_pass(shape(name), CARD, Q8, rows=count, depth=d) for d in (low, high))
    assert less.nbytes <= more.nbytes
    assert less.operations <= more.operations
    assert less.seconds <= more.seconds


@given(names, rows, depths)
def test_more_rows_never_cost_less_nor_more_than_one_after_the_other(
    name: str, count: int, depth: int
) -> None:
    one, some, more = (
        one_pass(shape(name), CARD, Q8, rows=n, depth=depth) for n in (1, count, count + 1)
    )
    assert some.nbytes <= more.nbytes
    assert some.seconds <= more.seconds * (1 + 1e-9)
    assert some.nbytes <= count * one.nbytes * 2


@given(names, depths, st.sampled_from(["turbo4", "q4_0", "q8_0", "f16"]))
def test_a_smaller_cache_is_read_faster(name: str, depth: int, smaller: str) -> None:
    small = one_pass(shape(name), CARD, Cache(smaller, smaller), rows=1, depth=depth)
    large = one_pass(shape(name), CARD, Cache("f32", "f32"), rows=1, depth=depth)
    assert small.nbytes <= large.nbytes


@pytest.mark.parametrize("name", MODELS)
def test_on_a_card_without_limits_the_launches_remain(name: str) -> None:
    dream = replace(CARD, dram_gbs=1e30, copy_gbs=None, tensor_tflops=1e30, slots_per_byte=1e30)
    found = one_pass(shape(name), dream, Q8, rows=16, depth=64_000)
    assert found.seconds == pytest.approx(found.launches * LAUNCH_SECONDS + GRAPH_SECONDS)
    assert found.launches <= 11 * sum(layer["count"] for layer in MODELS[name]["layers"]) + 4


@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize("card", ["rtx3090", "rtx4090", "rtx5090"])
@pytest.mark.parametrize("matrices", ["Q4_K", "Q5_K", "Q8_0"])
def test_dense_decoding_is_within_15_percent_of_bytes_over_bandwidth(
    name: str, card: str, matrices: str
) -> None:
    found = one_pass(shape(name, matrices), gpu(card), Q8, rows=1, depth=280)
    assert 1 <= found.seconds / (found.nbytes / gpu(card).bandwidth) <= 1.15


def test_unpacking_limits_cards_with_few_instructions_per_byte() -> None:
    four, eight = weight_type("Q4_0", "").format, weight_type("Q8_0", "").format
    assert gpu("rtx5090").share(four) == 1
    assert 0.5 < gpu("b200").share(four) < 0.6
    assert gpu("b200").share(four) < gpu("b200").share(eight)
    assert gpu("h200").share(weight_type("F16", "").format) == 1


def test_the_experts_that_a_pass_reads_grow_with_its_rows_and_end_at_all() -> None:
    experts = Experts(256, 8, {"Q4_K": 1e9})
    found = [experts.distinct(n) for n in (1, 4, 8, 16)]
    assert found == pytest.approx([8, 30, 57, 102], abs=0.7)
    assert experts.distinct(10_000) == pytest.approx(256)
    dense, mixed = (
        [one_pass(shape(name), CARD, Q8, rows=n, depth=0).seconds for n in (1, 16)]
        for name in ("gemma-4-31b", "qwen3.6-35b-a3b")
    )
    assert dense[1] < 1.05 * dense[0]
    assert mixed[1] > 2 * mixed[0]


def test_rows_are_computed_in_tiles() -> None:
    assert [padded(n) for n in (1, 16, 17, 32, 33, 128, 129)] == [16, 16, 32, 32, 128, 128, 256]


@pytest.mark.parametrize("name", MODELS)
def test_a_draft_is_small_and_what_it_does_in_a_prompt_smaller(name: str) -> None:
    data = read("runs")["drafts"][name]
    draft = draft_shape(data, MODELS[name], matrices="Q8_0", head="Q6_K")
    injection = injection_shape(data, MODELS[name], matrices="Q8_0")
    assert draft.numbers - draft.head < 0.1 * shape(name).numbers
    assert injection.numbers < draft.numbers - draft.head


def test_every_published_run_is_predicted_with_its_figures_beside() -> None:
    runs, found = reference_runs(), predict_reference_runs("rtx5090")
    assert published_on() == CARD
    assert [each.run for each in found] == list(runs)
    assert len(runs) == 24
    assert {run.model for run in runs} == set(MODELS) == {*DENSE, *MIXED}
    first = runs[0]
    assert (first.prompt_off, first.prompt_on) == (252.5, 184.8)
    assert (first.decode_off, first.decode_on) == (237.4, 340.6)
    refused = [run for run in runs if run.note.startswith("out of memory")]
    assert [(run.model, run.context, run.decode_on) for run in refused] == [
        ("gemma-4-31b", 65536, None)
    ]


def test_what_is_predicted_is_above_what_was_published_and_prompts_lose_little() -> None:
    for each in predict_reference_runs("rtx5090"):
        here, run = each.here, each.run
        assert here.decode_on is not None
        assert here.prompt_on is not None
        assert here.decode_off > (run.decode_off or 0)
        assert here.decode_on > (run.decode_on or 0)
        assert here.prompt_on > 0.97 * here.prompt_off
        assert each.memory < CARD.memory_gib * 2**30
        assert each.full.decode_off <= here.decode_off


def test_drafting_pays_from_as_many_tokens_as_its_passes_cost() -> None:
    for each in predict_reference_runs("h200"):
        here = each.here
        assert here.pays_from is not None
        assert here.verify is not None
        assert here.draft is not None
        assert here.pays_from * here.step.seconds == pytest.approx(
            here.verify.seconds + here.draft.seconds
        )
        assert 1 < here.pays_from < 5


def test_cards_are_known_by_their_names_and_the_others_are_told() -> None:
    assert gpu("RTX 5090") == gpu("rtx-5090") == gpus()["rtx5090"]
    with pytest.raises(Unknown, match="no GPU named 'voodoo2'") as caught:
        gpu("voodoo2")
    assert caught.value.hint == f"there are: {', '.join(gpus())}"
    for card in gpus().values():
        assert card.bandwidth <= 1e9 * card.dram_gbs
        assert set(card.slots_per_weight) == {"4", "5", "6", "8"}


# -- files of one's own --------------------------------------------------------------------------


def file(draft: str = "", **changes: str) -> LoadOptions:
    spec = SpecOptions(model=path_of(draft)) if draft else None
    return LoadOptions(path_of("qwen3"), spec=spec, **changes)  # type: ignore[arg-type]


def test_a_file_of_ones_own_is_predicted_at_several_depths() -> None:
    found = predict_file(file(), "rtx4090")
    assert found.gpu == "RTX 4090"
    assert all(a < b for a, b in pairwise(found.depths))
    speeds = list(found.depths.values())
    assert all(a.step.nbytes < b.step.nbytes for a, b in pairwise(speeds))
    assert {each.decode_on for each in speeds} == {None}
    assert found.parameters > 0


@pytest.mark.parametrize("draft", ["dflash--qwen3", "eagle3--qwen3", "qwen3"])
def test_a_draft_of_ones_own_too(draft: str) -> None:
    few, many = (predict_file(file(draft), "rtx4090", tokens) for tokens in (2.0, 4.0))
    for depth, speeds in few.depths.items():
        more = many.depths[depth].decode_on
        assert speeds.decode_on is not None
        assert more is not None
        assert more > speeds.decode_on


def test_the_bytes_of_a_file_are_those_of_its_matrices() -> None:
    speeds = predict_file(file(), "rtx4090").depths[0]
    matrices = sum(
        weight_type(info.type, "").format.bytes_per_weight() * info.elements
        for name, info in _tensors().items()
        if len(info.shape) > 1 and name != "token_embd.weight"
    )
    tied = "output.weight" not in _tensors()
    if tied:
        info = _tensors()["token_embd.weight"]
        matrices += weight_type(info.type, "").format.bytes_per_weight() * info.elements
    assert speeds.step.nbytes == pytest.approx(matrices)


def _tensors(name: str = "qwen3"):  # type: ignore[no-untyped-def]
    from turbodflash_engine.gguf import open_gguf

    with open_gguf(path_of(name)) as opened:
        return dict(opened.tensors)


def test_of_a_mixture_a_pass_of_one_row_reads_the_experts_that_it_uses() -> None:
    options = LoadOptions(path_of("qwen3moe"))
    found = predict_file(options, "rtx4090")
    tensors = _tensors("qwen3moe")
    read = {
        name: 4 * info.elements
        for name, info in tensors.items()
        if len(info.shape) > 1 and name != "token_embd.weight"
    }
    experts = sum(size for name, size in read.items() if "_exps" in name)
    assert found.depths[0].step.nbytes == sum(read.values()) - experts * 6 / 8
    assert found.parameters == (sum(read.values()) + 4 * tensors["token_embd.weight"].elements) / 4


def test_of_a_recurrent_layer_a_pass_reads_and_writes_its_memory_at_any_depth() -> None:
    found = predict_file(LoadOptions(path_of("qwen35")), "rtx4090")
    config = config_of("qwen35")
    memory = len(config.recurrent) * config.delta.nbytes
    tensors = _tensors("qwen35").items()
    matrices = sum(4 * info.elements for name, info in tensors if len(info.shape) > 1)
    looked_up = 4 * _tensors("qwen35")["token_embd.weight"].elements
    tied = "output.weight" not in dict(tensors)
    assert found.depths[0].step.nbytes == matrices - (0 if tied else looked_up) + 2 * memory


def test_layers_of_a_window_read_no_more_than_that() -> None:
    depths = predict_file(LoadOptions(path_of("gemma3")), "rtx4090").depths
    far = max(depths)
    shapes = config_of("gemma3").kv_shapes
    grown = depths[far].step.nbytes - depths[0].step.nbytes
    expected = sum(
        2 * 2 * shape.kv_heads * shape.key_dim * (min(far, shape.window) if shape.window else far)
        for shape in shapes
    )
    assert grown == pytest.approx(expected)
