"""Every vocabulary encodes and decodes as the reference does."""

from __future__ import annotations

import pytest
from tokenizers import Regex, pre_tokenizers

from tests.engine.tokenizer_vocabularies import ALL, golden, tokenizer
from turbodflash_engine.tokenizer import Detokenizer
from turbodflash_engine.tokenizer.pre import split_of

EVERY = pytest.mark.parametrize("name", ALL)


@EVERY
@pytest.mark.parametrize(
    ("key", "add_special", "parse_special"),
    [
        ("ids", False, False),
        ("ids_parse_special", False, True),
        ("ids_add_special", True, True),
    ],
)
def test_encodes_as_the_reference_does(name, key, add_special, parse_special):
    ours = tokenizer(name)
    for case in golden(name)["cases"]:
        ids = ours.encode(case["text"], add_special=add_special, parse_special=parse_special)
        assert ids == case[key], case["text"]


@EVERY
@pytest.mark.parametrize(
    ("key", "special"), [("pieces_hex", True), ("pieces_hex_special_hidden", False)]
)
def test_a_token_is_the_same_bytes(name, key, special):
    ours = tokenizer(name)
    for id, expected in golden(name)[key].items():
        assert ours.piece(int(id), special).hex() == expected, ours.token_text(int(id))


@EVERY
def test_special_tokens_are_read_from_the_file(name):
    ours, expected = tokenizer(name), golden(name)
    assert ours.vocab_size == expected["n_vocab"]
    assert (ours.bos_id, ours.eos_id) == (expected["bos"], expected["eos"])
    assert (ours.add_bos, ours.add_eos) == (expected["add_bos"], expected["add_eos"])


@EVERY
def test_streaming_prints_the_joined_pieces(name):
    ours, expected = tokenizer(name), golden(name)
    for case in expected["cases"]:
        ids = case["ids_parse_special"]
        whole = b"".join(bytes.fromhex(expected["pieces_hex"][str(id)]) for id in ids)
        assert ours.decode(ids) == whole
        stream = Detokenizer(ours, special=True)
        text = "".join(map(stream.push, ids)) + stream.flush()
        assert text == whole.decode("utf-8", "replace")


ENDS = {
    "gemma-4": {1, 50, 106},
    "llama-bpe": {128001, 128009},
    "llama-spm": {2},
    "qwen2": {128247, 151643, 151645},
    "qwen35": {128247, 151643, 151645},
    "smollm": {0, 2, 4},
    "tiny-bpe-qwen2": {500, 502},
    "tiny-spm-gemma3": {500, 502},
}


@pytest.mark.parametrize("name", sorted(ENDS.keys() & set(ALL)))
def test_what_ends_an_answer(name):
    assert tokenizer(name).eog == ENDS[name]


@pytest.mark.parametrize(
    ("pre", "vocabulary"),
    [("gpt-2", "gpt-2-no-vocabulary"), ("smollm", "smollm")],
)
def test_no_token_reaches_over_the_end_of_a_word(pre, vocabulary):
    """Checks a split without its vocabulary: the reference's tokens lie inside our words."""
    patterns = [pre_tokenizers.Split(Regex(each), "isolated") for each in split_of(pre).patterns]
    splitter = pre_tokenizers.Sequence(
        [*patterns, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    expected = golden(vocabulary)
    for case in expected["cases"]:
        sizes = [len(expected["pieces_hex"][str(id)]) // 2 for id in case["ids"]]
        words = [len(word) for word, _ in splitter.pre_tokenize_str(case["text"])]
        assert sum(sizes) == sum(words)
        assert _ends(words) <= _ends(sizes), case["text"]


def _ends(sizes: list[int]) -> set[int]:
    return {sum(sizes[:at]) for at in range(len(sizes) + 1)}
