"""Laws and edges of encoding: round trips, special tokens, merging, damaged vocabularies."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.tokenizer_vocabularies import BYTE_LEVEL, SMALL, bare, tokenizer
from turbodflash_engine.errors import BadModel, TurbodflashError
from turbodflash_engine.tokenizer import NOTHING, load_tokenizer
from turbodflash_engine.tokenizer.merging import merge, ranks
from turbodflash_engine.tokenizer.sentencepiece import SentencePieceEncoder
from turbodflash_engine.tokenizer.special import cut
from turbodflash_engine.tokenizer.vocabulary import SPACE, TokenType, read_vocabulary

NORMAL, UNKNOWN, CONTROL, USER, BYTE = (
    TokenType.NORMAL,
    TokenType.UNKNOWN,
    TokenType.CONTROL,
    TokenType.USER_DEFINED,
    TokenType.BYTE,
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
WILD = st.text(st.characters(), max_size=40) | st.text(
    "<|im_startend>/ \n\0\ud800\udfff▁", max_size=40
)


@pytest.mark.parametrize("name", BYTE_LEVEL)
@given(text=TEXT)
@settings(max_examples=60, deadline=None)
def test_byte_level_text_survives(name, text):
    """Bytes that a vocabulary lacks are dropped: smollm has no token for some rare ones."""
    ours = tokenizer(name)
    ids = ours.encode(text, add_special=False, parse_special=False)
    assert ours.decode(ids) == bytes(byte for byte in text.encode() if byte in single_bytes(name))


@cache
def single_bytes(name):
    ours = tokenizer(name)
    pieces = [ours.piece(id) for id in range(ours.vocab_size)]
    return {piece[0] for piece in pieces if len(piece) == 1}


def test_vocabularies_of_the_byte_level_law_have_the_bytes_of_nearly_all_text():
    assert all(len(single_bytes(name)) == 256 for name in BYTE_LEVEL if name != "smollm")
    missing = {*range(256)} - single_bytes("smollm")
    assert {byte for byte in missing if byte in b"\t\n\r" or 0x20 <= byte < 0xF1} == {0xC0, 0xC1}


@pytest.mark.parametrize("name", ["tiny-gemma4", "tiny-spm-gemma3"])
@given(text=TEXT)
@settings(max_examples=60, deadline=None)
def test_text_survives_where_spaces_are_escaped(name, text):
    ids = tokenizer(name).encode(text, add_special=False, parse_special=False)
    assert tokenizer(name).decode(ids) == text.replace(SPACE, " ").encode()


@pytest.mark.parametrize("name", SMALL)
@given(text=WILD, add=st.booleans(), parse=st.booleans())
@settings(max_examples=60, deadline=None)
def test_no_text_is_refused(name, text, add, parse):
    ours = tokenizer(name)
    ids = ours.encode(text, add_special=add, parse_special=parse)
    assert all(0 <= id < ours.vocab_size for id in ids)


def test_half_a_surrogate_pair_is_a_replacement_character_and_a_pair_is_its_character():
    ours = tokenizer("tiny-bpe-qwen2")
    ids = ours.encode("a\ud83d\ude00\ud800\0", add_special=False, parse_special=False)
    assert ours.decode(ids).decode() == "a😀\ufffd\0"


@pytest.mark.parametrize("name", ["tiny-bpe-llama", "tiny-spm-gemma3"])
def test_special_text_is_a_token_only_when_asked_but_user_defined_text_always(name):
    ours = tokenizer(name)
    eos = ours.token_text(ours.eos_id)
    text = f"{eos}<think>"
    parsed = ours.encode(text, add_special=False, parse_special=True)
    plain = ours.encode(text, add_special=False, parse_special=False)
    assert parsed == [ours.eos_id, 506]
    assert ours.eos_id not in plain
    assert plain[-1] == 506
    assert ours.decode(parsed, special=False) == b"<think>"
    assert ours.decode(plain, special=False) == text.encode()


@pytest.mark.parametrize(
    ("text", "tokens", "fragments"),
    [
        ("", [("x", 1)], []),
        ("abcd", [("bcd", 1), ("ab", 2)], ["a", 1]),
        ("abcd", [("ab", 2), ("bcd", 1)], [2, "cd"]),
        ("xxx", [("xx", 1), ("x", 2)], [1, 2]),
        ("x y x", [("x", 1)], [1, " y ", 1]),
        ("none here", [("x", 1)], ["none here"]),
    ],
)
def test_special_tokens_are_cut_out_in_their_order(text, tokens, fragments):
    assert cut(text, tokens) == fragments


def test_the_longest_special_token_in_bytes_wins():
    ours = load_tokenizer(
        bare(model="llama", tokens=["aé", "éaa", "aa"], token_type=[USER] * 3, add_bos_token=False)
    )
    assert ours.encode("aéaa", add_special=False, parse_special=False)[-1] == 1


def slow_merge(text, cost):
    """Merging as it is defined: look at all neighbours, merge the best, begin again."""
    symbols = list(text)
    while True:
        prices = [cost(*pair) for pair in pairwise(symbols)]
        known = [(price, at) for at, price in enumerate(prices) if price is not None]
        if not known:
            return symbols
        _, at = min(known)
        symbols[at : at + 2] = ["".join(symbols[at : at + 2])]


SCORES = st.dictionaries(
    st.text("ab▁", min_size=2, max_size=4), st.integers(0, 3).map(float), max_size=12
)


@given(text=st.text("ab▁", max_size=14), scores=SCORES)
@settings(max_examples=150, deadline=None)
def test_merging_with_a_queue_is_merging_by_definition(text, scores):
    def cost(left, right):
        return scores.get(left + right)

    assert merge(text, cost) == slow_merge(text, cost)


@given(text=st.text("ab▁", max_size=20), scores=SCORES)
@settings(max_examples=150, deadline=None)
def test_encoding_word_by_word_is_encoding_the_whole(text, scores):
    """Words may be encoded apart because no merge reaches over their edge, or they are one."""
    tokens = [*"ab▁", *scores]
    vocabulary = read_vocabulary(
        bare(model="llama", tokens=tokens, scores=[0.0] * 3 + [-s for s in scores.values()])
    )
    whole = slow_merge(text, lambda left, right: scores.get(left + right))
    assert SentencePieceEncoder(vocabulary)(text) == [tokens.index(symbol) for symbol in whole]


@pytest.mark.parametrize("text", ["a" * 4096, "ab" * 2048, "▁" * 4096])
def test_merging_looks_at_few_pairs_of_a_long_text(text):
    looks = 0

    def cost(left, right):
        nonlocal looks
        looks += 1
        whole = left + right
        return -float(len(whole)) if len(whole) & (len(whole) - 1) == 0 else None

    assert "".join(merge(text, cost)) == text
    assert looks < 8 * len(text)


def test_the_first_of_equal_merges_counts():
    assert ranks(["a b", "b c", "a b"]) == {"a b": 0, "b c": 1}


def test_a_word_that_is_a_token_is_taken_whole_where_the_split_says_so():
    values = {"model": "gpt2", "tokens": ["a", "b", "c", "abc", "ab"], "merges": ["a b"]}
    as_llama = load_tokenizer(bare(**values, pre="llama3", bos_token_id=2**32 - 1))
    as_qwen = load_tokenizer(bare(**values, pre="qwen2"))
    assert as_llama.encode("abc", add_special=True, parse_special=True) == [3]
    assert as_qwen.encode("abc", add_special=True, parse_special=True) == [4, 2]


@pytest.mark.parametrize(
    ("prefix", "text", "expected"),
    [
        (True, "ab", [5, 1]),
        (False, "ab", [0, 1]),
        (True, "a<x>b", [5, 3, 4, 1]),
        (True, "", []),
        (True, "<x>", [3]),
    ],
)
def test_a_space_is_put_first_and_after_special_tokens(prefix, text, expected):
    ours = load_tokenizer(
        bare(
            model="llama",
            tokens=["a", "b", "c", "<x>", SPACE, f"{SPACE}a"],
            token_type=[NORMAL, NORMAL, NORMAL, USER, NORMAL, NORMAL],
            add_space_prefix=prefix,
            add_bos_token=False,
        )
    )
    assert ours.encode(text, add_special=True, parse_special=False) == expected


@pytest.mark.parametrize(
    ("model", "values", "bos"),
    [
        ("gpt2", {"pre": "qwen2"}, False),
        ("gpt2", {"pre": "llama-bpe"}, True),
        ("gpt2", {"pre": "llama-bpe", "add_bos_token": False}, False),
        ("llama", {}, True),
        ("llama", {"add_bos_token": False}, False),
        ("gemma4", {"add_bos_token": False}, True),
        ("gemma4", {"bos_token_id": 2**32 - 1}, False),
    ],
)
def test_who_begins_with_bos(model, values, bos):
    ours = load_tokenizer(
        bare(**{"model": model, "tokens": list("abcdefgh"), "bos_token_id": 3} | values)
    )
    assert ours.add_bos is bos
    assert (ours.encode("a", add_special=True, parse_special=True)[0] == 3) is bos


def test_eos_is_added_where_the_file_asks_for_it():
    ours = load_tokenizer(
        bare(model="llama", tokens=["a", "<s>", "</s>"], add_eos_token=True, add_space_prefix=False)
    )
    assert ours.encode("a", add_special=True, parse_special=False) == [1, 0, 2]


@pytest.mark.parametrize(
    ("tokens", "ids", "eog"),
    [
        (["<|eot_id|>", "<|eom_id|>", "<turn|>", "a"], {}, {0, 1, 2}),
        (["a", "b"], {"eos_token_id": 1}, {1}),
        (["a", "b"], {"eos_token_id": 1, "eot_token_id": 0}, {0, 1}),
        (["<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<|fim_prefix|>"], {}, {0, 1, 2}),
        (
            ["<|endoftext|>", "<|im_end|>", "<think>", "<|fim_pad|>", "<|repo_name|>"],
            {"eos_token_id": 1},
            {0, 1, 3, 4},
        ),
        (["<|fim_pad|>", "a"], {"fim_pad_token_id": 1}, {1}),
        (["<|end|>", "<|return|>", "<|call|>"], {}, {1, 2}),
        (["<|end|>", "<|calls|>", "<|flush|>"], {}, {1, 2}),
        (["<|end|>", "<|return|>"], {}, {0, 1}),
        (["</s>", "<|tool_response>"], {}, {1}),
        (["</s>", "a"], {}, {0}),
    ],
)
def test_which_tokens_end_an_answer(tokens, ids, eog):
    none = {"bos_token_id": 99, "eos_token_id": 99}
    ours = load_tokenizer(bare(**none | {"model": "gpt2", "tokens": tokens} | ids))
    assert ours.eog == eog


def test_text_that_ends_an_answer_is_a_control_token_whatever_the_file_says():
    ours = load_tokenizer(bare(model="gpt2", tokens=["<", "<|im_end|>"], token_type=[NORMAL, USER]))
    assert ours.control(1)
    assert ours.piece(1) == b""
    assert ours.piece(1, special=True) == b"<|im_end|>"
    assert ours.encode("<|im_end|>", add_special=False, parse_special=False) == [0]


def test_a_tool_response_model_has_the_closing_tag_as_text():
    ours = load_tokenizer(
        bare(model="gpt2", tokens=["</s>", "<|tool_response>"], token_type=[CONTROL, USER])
    )
    assert not ours.control(0)
    assert ours.piece(0) == b"</s>"


def test_a_character_without_a_token_is_its_bytes_or_unknown():
    tokens = ["<0xC3>", "<0xA9>", "<unk>", "x"]
    ours = load_tokenizer(
        bare(
            model="llama",
            tokens=tokens,
            token_type=[BYTE, BYTE, UNKNOWN, NORMAL],
            unknown_token_id=2,
            add_bos_token=False,
            add_space_prefix=False,
        )
    )
    ids = ours.encode("éxy", add_special=False, parse_special=False)
    assert ids == [0, 1, 3, 2]
    assert ours.decode(ids, special=False).decode() == "éx"


def test_suppressed_tokens_are_those_of_the_vocabulary():
    ours = load_tokenizer(bare(model="gpt2", tokens=["a", "b"], suppress_tokens=[1, 7, -1]))
    assert ours.suppress == (1,)
    assert ours.token_text(NOTHING) == ""


TOKENS = {"model": "gpt2", "tokens": ["a", "b"]}


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({}, "'tokenizer.ggml.model' is missing"),
        ({"model": "bert", "tokens": ["a"]}, "'bert' is not supported; supported are: gpt2, llama"),
        ({"model": "gpt2"}, "'tokenizer.ggml.tokens' is missing or empty"),
        (TOKENS | {"pre": "llama4"}, "splits words by 'llama4', which is not supported"),
        (TOKENS | {"token_type": [1]}, "'tokenizer.ggml.token_type' has 1 entries"),
        (TOKENS | {"token_type": [1, 9]}, "the type of token 1 is 9; token types are 0 to 6"),
        (TOKENS | {"token_type": [1.0, 1.0]}, "is an array of float, expected int"),
        (TOKENS | {"model": "llama", "scores": [0.5]}, "'tokenizer.ggml.scores' has 1 entries"),
        ({"model": "gpt2", "tokens": [1, 2]}, "is an array of int, expected str"),
    ],
)
def test_a_vocabulary_that_cannot_be_used_says_why(values, sentence):
    with pytest.raises(BadModel) as caught:
        load_tokenizer(bare(**values))
    assert sentence in str(caught.value)


@given(
    tokens=st.lists(st.text(max_size=4), min_size=1, max_size=8),
    merges=st.lists(st.text("ab ▁", max_size=4), max_size=6),
    types=st.lists(st.integers(-1, 7), max_size=8),
    model=st.sampled_from(["gpt2", "llama", "gemma4"]),
    special=st.integers(-(2**31), 2**32),
    text=st.text(max_size=12),
)
@settings(max_examples=200, deadline=None)
def test_a_senseless_vocabulary_is_an_error_or_works(tokens, merges, types, model, special, text):
    meta = bare(model=model, tokens=tokens, merges=merges, token_type=types, bos_token_id=special)
    try:
        ours = load_tokenizer(meta)
    except TurbodflashError:
        return
    ids = ours.encode(text, add_special=True, parse_special=True)
    assert all(0 <= id < len(tokens) for id in ids)
    assert isinstance(ours.decode(ids), bytes)
