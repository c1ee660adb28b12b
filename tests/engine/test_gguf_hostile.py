"""A file may lie about everything. It costs an error that names what is wrong, and nothing else."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.gguf_bytes import (
    ARRAY,
    BOOL,
    STRING,
    U32,
    gguf,
    numbers,
    sample,
    scalar,
    string,
    strings,
    tensor,
    text,
    u32,
    u64,
)
from tests.golden_files import unpacked
from turbodflash_engine.errors import BadModel, TurbodflashError
from turbodflash_engine.gguf import open_gguf
from turbodflash_engine.gguf.header import read_header
from turbodflash_engine.gguf.strings import Strings
from turbodflash_engine.metadata import Metadata

HUGE = 2**63
DATA = bytes(64)


def array(key, kind, count, rest=b""):
    return text(key) + u32(ARRAY) + u32(kind) + u64(count) + rest


HOSTILE = {
    "version 1": (gguf(version=1), "has GGUF version 1; versions 2 and 3 are supported"),
    "version 4": (gguf(version=4), "has GGUF version 4"),
    "version 0": (gguf(version=0), "has GGUF version 0"),
    "big-endian": (gguf(version=3 << 24), "is a big-endian GGUF file"),
    "tensor count": (gguf(tensor_count=HUGE), "claims 9,223,372,036,854,775,808 for the number of"),
    "tensor count by one": (gguf(tensors=[tensor("a", (8,))], tensor_count=2), "number of tensors"),
    "key count": (gguf(key_count=2**64 - 1), "for the number of metadata keys at byte 16"),
    "key count by one": (gguf([scalar("a", U32, 1)], key_count=2), "number of metadata keys"),
    "key length": (gguf([u64(HUGE) + b"abc" + bytes(20)]), "the length of the name of metadata"),
    "key not utf-8": (gguf([scalar(b"a\xff", U32, 1)]), "metadata key 1 of 1 at byte 32 that is n"),
    "key twice": (gguf([scalar("a", U32, 1)] * 2), "metadata key 'a' twice, again at byte 41"),
    "value type": (gguf([text("a") + u32(13)]), "a value of unknown type 13 as the metadata key"),
    "bool": (gguf([scalar("a", BOOL, 2)]), "has 2 as the metadata key 'a' at byte 37"),
    "bools": (gguf([numbers("a", BOOL, (0, 1, 3))]), "values other than 0 and 1 in the metadata"),
    "string length": (
        gguf([text("a") + u32(STRING) + u64(HUGE)]),
        "the length of the metadata key",
    ),
    "string not utf-8": (gguf([string("a", b"\xc3(")]), "'a' at byte 45 that is not UTF-8"),
    "array length": (gguf([array("a", U32, HUGE)]), "the length of the metadata key 'a'"),
    "array length by one": (gguf([array("a", U32, 2, u32(1))]), "the length of the metadata"),
    "array type": (gguf([array("a", 99, 0)]), "a value of unknown type 99"),
    "array of arrays": (gguf([array("a", ARRAY, 1, bytes(99))]), "has an array of arrays"),
    "strings": (gguf([array("a", STRING, HUGE)]), "the length of the metadata key 'a'"),
    "string in array": (
        gguf([array("a", STRING, 2, text("ok") + u64(HUGE))]),
        "is incomplete: string 1 of the metadata key 'a' at byte 59 claims 9,223",
    ),
    "alignment zero": (
        gguf([scalar("general.alignment", U32, 0)]),
        "alignment 0, expected a power",
    ),
    "alignment odd": (gguf([scalar("general.alignment", U32, 48)]), "general.alignment 48"),
    "alignment text": (gguf([string("general.alignment", "32")]), "general.alignment '32'"),
    "tensor twice": (
        gguf([], [tensor("a", (8,)), tensor("a", (8,), 0, 32)], DATA),
        "has the tensor 'a' twice",
    ),
    "tensor name length": (gguf([], [u64(HUGE) + bytes(40)]), "the length of the name of tensor 1"),
    "no dimensions": (gguf([], [tensor("a", ()) + bytes(8)]), "has 0 dimensions for tensor 'a'"),
    "five dimensions": (gguf([], [tensor("a", (1,) * 5)]), "has 5 dimensions for tensor 'a'"),
    "many dimensions": (
        gguf([], [text("a") + u32(2**32 - 1) + bytes(40)]),
        "4294967295 dimensions",
    ),
    "empty dimension": (gguf([], [tensor("a", (8, 0))]), "gives tensor 'a' the shape [8, 0]"),
    "size": (gguf([], [tensor("a", (HUGE,))], DATA), "ends at byte 36,893,488,147,419,103,296 but"),
    "sizes that wrap": (gguf([], [tensor("a", (2**32, 2**32))], DATA), "is incomplete: tensor 'a'"),
    "half a block": (
        gguf([], [tensor("a", (48,), 2)], DATA),
        "the first a multiple of 32 for Q4_0",
    ),
    "tensor type": (
        gguf([], [tensor("a", (8,), 4)], DATA),
        "stores tensor 'a' in type 4, which is",
    ),
    "offset": (gguf([], [tensor("a", (8,), 0, HUGE)], DATA), "is incomplete: tensor 'a' ends at"),
    "offset by one block": (gguf([], [tensor("a", (8,), 0, 64)], DATA), "tensor 'a' ends at byte"),
    "misaligned": (gguf([], [tensor("a", (1,), 0, 4)], DATA), "not a multiple of its alignment 32"),
    "overlap": (
        gguf([], [tensor("a", (9,)), tensor("b", (8,), 0, 32)], DATA),
        "has tensors that overlap: 'a' ends at byte 132 and 'b' starts at 128",
    ),
    "no data": (gguf([], [tensor("a", (8,))]), "is incomplete: tensor 'a' ends"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_lie_is_named(case, tmp_path):
    raw, sentence = HOSTILE[case]
    path = tmp_path / "x.gguf"
    path.write_bytes(raw)
    with pytest.raises(BadModel) as error:
        open_gguf(path)
    assert str(error.value).startswith(f"'{path}' ")
    assert sentence in str(error.value)
    assert error.value.hint


def test_names_from_a_file_reach_the_terminal_short_and_without_control_characters():
    name = "\x1b[2J" + "x" * 100_000
    with pytest.raises(BadModel) as error:
        read_header(gguf([], [tensor(name, (8,), 4)]), "x.gguf")
    assert "\x1b" not in str(error.value)
    assert len(str(error.value)) < 300


def test_a_string_that_is_not_utf8_is_an_error_when_the_array_is_read():
    values = read_header(gguf([strings("words", ["fine", b"\xff"])]), "x.gguf").values
    with pytest.raises(BadModel, match=r"'x.gguf', the metadata key 'words': string 1 is not UTF"):
        Metadata(values).get("words")


def test_a_file_cut_anywhere_is_incomplete():
    whole = sample()
    read_header(whole, "x.gguf")
    for length in range(len(whole)):
        with pytest.raises(BadModel, match=r"^'x.gguf' (is incomplete|claims)"):
            read_header(whole[:length], "x.gguf")


def test_a_real_header_cut_anywhere_is_incomplete(tmp_path):
    whole = unpacked("tiny-llama", tmp_path).read_bytes()
    for length in range(0, read_header(whole, "x.gguf").data_start, 29):
        with pytest.raises(BadModel, match=r"^'x.gguf' (is incomplete|claims)"):
            read_header(whole[:length], "x.gguf")


SAMPLE = sample()
HEADER_BYTES = read_header(SAMPLE, "x").data_start
NUMBERS = [0, 1, 2, 3, 8, 9, 31, 127, 255, 2**16, 2**31, 2**32 - 1, 2**40, HUGE - 1, HUGE, -1]


EDITS = ("set", "set", "set", "insert", "delete", "copy", "cut")
EDIT_BYTES = 8


def mutated(script):
    """The sample after one edit of its header, after two, and so on, eight bytes an edit."""
    raw = bytearray(SAMPLE)
    for start in range(0, len(script), EDIT_BYTES):
        edit(raw, *script[start : start + EDIT_BYTES])
        yield bytes(raw)


def edit(raw, low, high, how, wide, number, *noise):
    at = (low + 256 * high) % HEADER_BYTES
    width = (1, 4, 8)[wide % 3]
    value = NUMBERS[number % len(NUMBERS)] if number < 200 else int.from_bytes(noise, "little")
    piece = (value % 2**64).to_bytes(8, "little")[:width]
    kind = EDITS[how % len(EDITS)]
    if kind == "set":
        raw[at : at + width] = piece
    elif kind == "insert":
        raw[at:at] = piece
    elif kind == "delete":
        del raw[at : at + width]
    elif kind == "copy":
        raw[at:at] = raw[at : at + 4 * width]
    else:
        del raw[max(at, 4) :]


EDITS_EACH = 4
SCRIPTS = st.binary(min_size=EDITS_EACH * EDIT_BYTES, max_size=EDITS_EACH * EDIT_BYTES)


def read_everything(raw):
    try:
        header = read_header(raw, "x.gguf")
        for value in header.values.values():
            if isinstance(value, Strings):
                value.decode()
    except TurbodflashError as error:
        return str(error)
    assert all(entry.start + entry.nbytes <= len(raw) for entry in header.entries)
    return ""


FUZZ = settings(derandomize=True, deadline=None, database=None)
HEADERS, MEASURED = 10_000, 400


@settings(FUZZ, max_examples=HEADERS // EDITS_EACH)
@given(SCRIPTS)
def test_a_mutated_header_is_read_or_refused(script):
    for raw in mutated(script):
        read_everything(raw)


@settings(FUZZ, max_examples=MEASURED // EDITS_EACH)
@given(SCRIPTS)
def test_a_mutated_header_costs_no_memory(script):
    for raw in mutated(script):
        peak = peak_of_reading(raw)
        assert peak < 50_000, f"{peak:,} bytes for a file of {len(raw):,}"


def peak_of_reading(raw):
    tracemalloc.start()
    try:
        read_everything(raw)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
