"""However strings are found and decoded, they are those that were written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.gguf_bytes import text
from turbodflash_engine.gguf import strings
from turbodflash_engine.gguf.strings import Strings, Truncated, locate

LENGTHS = st.integers(0, 12) | st.sampled_from((127, 128, 255, 256, 257, 1000))
CONTROLS = "".join(map(chr, range(1, 32)))
ANY_TEXT = st.text(max_size=12) | st.text("\0\1\2a", max_size=12) | LENGTHS.map(lambda n: "é" * n)


def decode(values, before=b"", after=b""):
    packed = b"".join(map(text, values))
    raw = before + packed + after
    places = locate(raw, len(before), len(values))
    assert places[0] == len(before)
    assert places[-1] == len(before) + len(packed)
    return Strings(raw[places[0] : places[-1]], places, "here").decode()


@given(st.lists(ANY_TEXT, max_size=40), st.binary(max_size=20), st.binary(max_size=20))
def test_strings_come_back(values, before, after):
    assert decode(values, before, after) == values


@pytest.mark.parametrize(("window", "steps"), [(64, 1), (64, 3), (256, 2), (8, 1), (1, 1)])
@given(values=st.lists(ANY_TEXT, max_size=40))
def test_strings_come_back_over_the_edges_of_windows(values, window, steps):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strings, "WINDOW", window)
        patch.setattr(strings, "PLAIN_STEPS", steps)
        assert decode(values, after=b"\0\1\2") == values


@pytest.mark.parametrize(
    "odd", ["", "x" * 300, "a\0b", "\0" * 9, "\0\0\0\0\0\0\0\1", "\1\2", CONTROLS]
)
@pytest.mark.parametrize("place", [0, 1, 20_000, 59_999])
def test_one_odd_string_among_many_does_not_disturb_them(odd, place):
    values = [f"token {number} é" for number in range(60_000)]
    values[place] = odd
    assert decode(values) == values


def test_a_string_beyond_the_end_is_counted():
    raw = b"".join(map(text, ["a"] * 10_000))[:-1]
    with pytest.raises(Truncated) as end:
        locate(raw, 0, 10_000)
    assert (end.value.index, end.value.length) == (9_999, 1)
