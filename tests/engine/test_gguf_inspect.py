"""Inspecting says what a file holds, and why it would not load."""

from __future__ import annotations

import json
from dataclasses import asdict

from tests.engine.gguf_bytes import I32, U32, gguf, numbers, scalar, string, strings, tensor
from tests.golden_files import unpacked
from turbodflash_engine import inspect_file


def test_a_model_is_summed_up(tmp_path):
    found = inspect_file(unpacked("tiny-llama-q-q4_1", tmp_path))
    assert (found.version, found.architecture, found.file_type) == (3, "llama", "Q4_1")
    assert found.file_bytes == (tmp_path / "tiny-llama-q-q4_1.gguf").stat().st_size
    assert sum(kind.tensors for kind in found.types) == len(found.tensors)
    assert sum(kind.elements for kind in found.types) == found.parameters
    assert sum(kind.nbytes for kind in found.types) == sum(t.nbytes for t in found.tensors)
    assert {kind.type for kind in found.types} == {tensor.type for tensor in found.tensors}
    assert [kind.nbytes for kind in found.types] == sorted(
        (kind.nbytes for kind in found.types), reverse=True
    )
    assert found.tokenizer is not None
    assert (found.tokenizer.model, found.tokenizer.tokens) == ("gpt2", 512)
    assert {(s.role, s.text) for s in found.tokenizer.special} >= {("eos", "<|endoftext|>")}
    assert found.problems == ()
    assert not [key for key in found.unread if key.startswith("llama.")]


def test_everything_found_can_be_written_as_json(tmp_path):
    found = inspect_file(unpacked("tiny-llama", tmp_path))
    assert json.loads(json.dumps(asdict(found)))["architecture"] == "llama"


def made(tmp_path, *keys, tensors=(), data=b""):
    path = tmp_path / "made.gguf"
    path.write_bytes(gguf(keys, tensors, data))
    return inspect_file(path)


def test_long_arrays_are_told_in_words_and_short_ones_shown(tmp_path):
    found = made(
        tmp_path,
        strings("words", [f"word {n}" for n in range(1000)]),
        numbers("few", I32, range(8)),
        numbers("many", I32, range(9)),
    )
    assert found.metadata["words"].startswith("a list of 1,000 strings: 'word 0', 'word 1'")
    assert found.metadata["few"] == [0, 1, 2, 3, 4, 5, 6, 7]
    assert found.metadata["many"].startswith("a list of 9 values (int32): 0, 1")


def test_what_keeps_a_file_from_loading_is_told_at_once(tmp_path):
    found = made(
        tmp_path,
        string("general.architecture", "llamx"),
        scalar("llamx.block_count", U32, 1),
        tensors=[tensor("odd", (256,), 41)],
        data=bytes(64),
    )
    assert found.name == "made"
    assert found.tokenizer is None
    assert found.chat_template is None
    assert found.unread == ("llamx.block_count",)
    assert len(found.problems) == 3
    assert found.problems[0] == "architecture 'llamx' is not supported"
    assert "tokenizer" in found.problems[1]
    assert "tensor 'odd' uses quantization Q1_0" in found.problems[2]


def test_a_key_the_architecture_does_not_know_is_unread(tmp_path):
    found = made(
        tmp_path,
        string("general.architecture", "llama"),
        string("general.author", "somebody"),
        scalar("llama.block_count", U32, 1),
        scalar("llama.moon_phase", U32, 3),
        string("tokenizer.chat_template", "{{ messages }}"),
    )
    assert "llama.moon_phase" in found.unread
    assert "llama.block_count" not in found.unread
    assert "general.author" not in found.unread
    assert found.chat_template == "{{ messages }}"


def test_a_special_token_outside_the_vocabulary_has_no_text(tmp_path):
    found = made(
        tmp_path,
        string("general.architecture", "llama"),
        string("tokenizer.ggml.model", "gpt2"),
        strings("tokenizer.ggml.tokens", ["a", "b"]),
        scalar("tokenizer.ggml.eos_token_id", U32, 1),
        scalar("tokenizer.ggml.bos_token_id", U32, 9),
    )
    assert found.tokenizer is not None
    assert {(s.role, s.id, s.text) for s in found.tokenizer.special} == {
        ("eos", 1, "b"),
        ("bos", 9, ""),
    }
