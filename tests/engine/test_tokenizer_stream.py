"""Streaming never prints half a character and loses nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.tokenizer_vocabularies import SMALL, tokenizer
from turbodflash_engine.tokenizer import Detokenizer


class Bytes:
    """A tokenizer whose tokens are given byte strings."""

    def __init__(self, pieces):
        self.pieces = pieces

    def piece(self, id, special=False):
        return self.pieces[id]


def stream(pieces):
    detokenizer = Detokenizer(Bytes(pieces))
    return [detokenizer.push(id) for id in range(len(pieces))], detokenizer.flush()


@given(
    text=st.text(st.characters(exclude_characters="\ufffd", exclude_categories=["Cs"])),
    data=st.data(),
)
@settings(max_examples=200, deadline=None)
def test_valid_text_split_anywhere_comes_out_whole(text, data):
    raw = text.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=12)))
    pieces = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    texts, rest = stream(pieces)
    assert "".join(texts) == text
    assert rest == ""


@given(st.lists(st.binary(max_size=5), max_size=12))
@settings(max_examples=200, deadline=None)
def test_any_bytes_stream_as_they_decode_at_once(pieces):
    texts, rest = stream(pieces)
    assert "".join(texts) + rest == b"".join(pieces).decode("utf-8", "replace")


@pytest.mark.parametrize("name", SMALL)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_any_tokens_stream_as_they_decode_at_once(name, data):
    ours = tokenizer(name)
    ids = data.draw(st.lists(st.integers(0, ours.vocab_size - 1), max_size=20))
    special = data.draw(st.booleans())
    detokenizer = Detokenizer(ours, special)
    text = "".join(map(detokenizer.push, ids)) + detokenizer.flush()
    assert text == ours.decode(ids, special).decode("utf-8", "replace")


@pytest.mark.parametrize(
    ("pieces", "texts", "rest"),
    [
        ([b"\xf0\x9f", b"\x98", b"\x80!"], ["", "", "😀!"], ""),
        ([b"a\xc3", b"\xa9"], ["a", "é"], ""),
        ([b"\xe4\xbd"], [""], "\ufffd"),
        ([b"\xff", b"a"], ["\ufffd", "a"], ""),
        ([b"\xe4", b"a"], ["", "\ufffda"], ""),
    ],
)
def test_a_character_waits_for_its_bytes(pieces, texts, rest):
    assert stream(pieces) == (texts, rest)


def test_a_flushed_stream_begins_anew():
    detokenizer = Detokenizer(Bytes([b"\xe4", b"a"]))
    detokenizer.push(0)
    assert detokenizer.flush() == "\ufffd"
    assert detokenizer.push(1) == "a"


def test_control_tokens_are_hidden_unless_asked_for():
    ours = tokenizer("tiny-bpe-qwen2")
    shown, hidden = Detokenizer(ours, special=True), Detokenizer(ours)
    assert shown.push(ours.eos_id) == "<|endoftext|>"
    assert hidden.push(ours.eos_id) == ""


def test_a_control_token_may_be_told_all_the_same():
    ours = tokenizer("tiny-bpe-qwen2")
    ids = ours.encode("<|im_end|><|bos|>", add_special=False, parse_special=True)
    assert all(ours.control(id) for id in ids)
    for preserved, text in (((), ""), (ids[:1], "<|im_end|>"), (ids, "<|im_end|><|bos|>")):
        stream = Detokenizer(ours, preserved=preserved)
        assert "".join(map(stream.push, ids)) == text
