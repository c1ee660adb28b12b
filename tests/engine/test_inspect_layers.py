"""Inspecting tells layers by kind and what a token is computed with, whatever the architecture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod

import pytest

from tests.engine.gguf_bytes import BOOL, U32, gguf, numbers, scalar, string, tensor
from tests.engine.tiny_models import path_of
from turbodflash_engine import Inspection, LayerSummary, inspect_file, plugins

Shapes = Mapping[str, Sequence[int]]

WIDTH, FFN, EXPERTS = 64, 128, 8
ATTENTION = {"attn_q.weight": (WIDTH, WIDTH), "attn_output.weight": (WIDTH, WIDTH)}
RECURRENT = {"attn_qkv.weight": (WIDTH, 2 * WIDTH), "ssm_a": (4,), "ssm_out.weight": (WIDTH, WIDTH)}
DENSE = {"ffn_up.weight": (WIDTH, FFN), "ffn_down.weight": (FFN, WIDTH)}
ROUTED = {"ffn_gate_inp.weight": (WIDTH, EXPERTS), "ffn_up_exps.weight": (WIDTH, 32, EXPERTS)}
SHARED = {"ffn_up_shexp.weight": (WIDTH, 32)}
MTP = {"nextn.eh_proj.weight": (2 * WIDTH, WIDTH)}
TABLES = {"token_embd.weight": (WIDTH, 512), "output.weight": (WIDTH, 512)}


@pytest.fixture
def inspected(tmp_path):
    def of(shapes: Shapes, *keys: bytes) -> Inspection:
        path = tmp_path / "made.gguf"
        entries, at = [], 0
        for name, shape in shapes.items():
            entries.append(tensor(name, shape, 0, at))
            at += -(-4 * prod(shape) // 32) * 32
        path.write_bytes(
            gguf([string("general.architecture", "newest"), *keys], entries, bytes(at))
        )
        return inspect_file(path)

    return of


def layers(*parts: Iterable[Shapes]) -> dict[str, Sequence[int]]:
    """The tensors of layers that have these parts each."""
    return {
        f"blk.{layer}.{name}": shape
        for layer, each in enumerate(parts)
        for part in each
        for name, shape in part.items()
    }


def size(*parts: Shapes) -> int:
    return sum(prod(shape) for part in parts for shape in part.values())


def told(layer: LayerSummary) -> tuple[object, ...]:
    return layer.mixer, layer.window, layer.dense, layer.experts, layer.used, layer.shared


def test_layers_of_one_make_are_counted_together(inspected):
    hybrid = [(RECURRENT, DENSE)] * 3 + [(ATTENTION, DENSE)]
    recurrent, attention = inspected(layers(*hybrid, *hybrid)).layers
    assert told(recurrent) == ("recurrent", 0, True, 0, 0, False)
    assert told(attention) == ("attention", 0, True, 0, 0, False)
    assert recurrent.layers == (0, 1, 2, 4, 5, 6)
    assert attention.layers == (3, 7)
    assert recurrent.parameters == recurrent.active == 6 * size(RECURRENT, DENSE)
    assert attention.nbytes == 4 * attention.parameters


def test_of_experts_a_token_takes_some(inspected):
    used = scalar("newest.expert_used_count", U32, 2)
    found = inspected(layers((ATTENTION, ROUTED, SHARED), (ATTENTION, DENSE)), used)
    experts, dense = found.layers
    assert told(experts) == ("attention", 0, False, EXPERTS, 2, True)
    assert told(dense) == ("attention", 0, True, 0, 0, False)
    idle = WIDTH * 32 * (EXPERTS - 2)
    assert experts.parameters - experts.active == idle
    assert found.parameters - found.active == idle


def test_layers_may_take_different_numbers_of_experts(inspected):
    used = numbers("newest.expert_used_count", U32, [1, 4])
    found = inspected(layers((ATTENTION, ROUTED), (ATTENTION, ROUTED)), used)
    assert [layer.used for layer in found.layers] == [1, 4]


def test_both_kinds_of_feed_forward_part_may_stand_in_a_layer(inspected):
    used = scalar("newest.expert_used_count", U32, 2)
    (layer,) = inspected(layers((ATTENTION, DENSE, ROUTED)), used).layers
    assert told(layer) == ("attention", 0, True, EXPERTS, 2, False)


def test_layers_may_slide_in_a_pattern_that_the_file_holds(inspected):
    found = inspected(
        layers((ATTENTION, DENSE), (ATTENTION, DENSE), (ATTENTION, DENSE)),
        numbers("newest.attention.sliding_window_pattern", BOOL, [True, False, True]),
        scalar("newest.attention.sliding_window", U32, 512),
    )
    assert [(layer.window, layer.layers) for layer in found.layers] == [(512, (0, 2)), (0, (1,))]
    assert "newest.attention.sliding_window" in found.unread


def test_heads_that_guess_further_tokens_stand_apart_and_are_not_active(inspected):
    found = inspected(layers((ATTENTION, DENSE), (ATTENTION, DENSE, MTP)))
    trunk, mtp = found.layers
    assert (trunk.mtp, mtp.mtp) == (False, True)
    assert found.active == trunk.active == size(ATTENTION, DENSE)


@pytest.mark.parametrize(("tables", "active"), [(TABLES, WIDTH * 513), ({}, 0)])
def test_a_token_takes_a_row_of_the_embedding_beside_the_head(inspected, tables, active):
    assert inspected(tables).active == active


def test_an_embedding_that_is_the_head_too_is_active_whole(inspected):
    tied = {"token_embd.weight": TABLES["token_embd.weight"]}
    assert inspected(tied).active == WIDTH * 512


@pytest.mark.parametrize("draft", ["dflash", "dflash-swa-d2t", "dspark", "eagle3", "eagle3-d2t"])
def test_a_draft_is_known_for_what_it_drafts_as(draft):
    found = inspect_file(path_of(f"{draft}--qwen3"))
    assert found.drafts == f"draft-{draft.partition('-')[0]}"
    assert found.problems == ()
    assert not any(key.endswith("block_size") for key in found.unread)


DENSE_ATTENTION = ("attention", 0, True, 0, 0, False)
MADE_OF = {  # each architecture's tiny model: its makes of layers, and the layers of each
    "gemma3": {("attention", 16, True, 0, 0, False): (0, 1, 2, 3, 4, 6), DENSE_ATTENTION: (5,)},
    "gemma4": {("attention", 16, True, 0, 0, False): (0, 1, 3, 4), DENSE_ATTENTION: (2, 5)},
    "llama": {DENSE_ATTENTION: (0, 1, 2, 3)},
    "qwen2": {DENSE_ATTENTION: (0, 1, 2, 3)},
    "qwen3": {DENSE_ATTENTION: tuple(range(6))},
    "qwen3moe": {("attention", 0, False, 8, 2, False): (0, 1, 2, 3)},
    "qwen35": {
        ("recurrent", 0, True, 0, 0, False): (0, 1, 2, 4, 5, 6),
        DENSE_ATTENTION: (3, 7),
    },
    "qwen35moe": {
        ("recurrent", 0, False, 8, 2, True): (0, 1, 2, 4, 5, 6),
        ("attention", 0, False, 8, 2, True): (3, 7),
    },
}


@pytest.mark.parametrize("name", plugins.names("models"))
def test_every_architecture_is_known_by_its_layers(name):
    found = inspect_file(path_of(name))
    assert found.drafts == ""
    assert found.problems == ()
    assert {told(layer): layer.layers for layer in found.layers} == MADE_OF[name]


def test_what_contradicts_the_metadata_is_a_problem(tmp_path):
    raw = path_of("llama").read_bytes()
    key = b"llama.feed_forward_length"
    at = raw.index(key) + len(key) + 4
    path = tmp_path / "contradicts.gguf"
    path.write_bytes(raw[:at] + (100).to_bytes(4, "little") + raw[at + 4 :])
    (problem,) = inspect_file(path).problems
    assert "tensor 'blk.0.ffn_down.weight' has the shape" in problem
    assert problem.endswith(": metadata key 'llama.feed_forward_length' is 100")
