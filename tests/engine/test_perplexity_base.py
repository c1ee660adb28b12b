"""The file that a reading is kept in: what is written is read, and what is wrong is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turbodflash_engine.errors import BadUsage, TurbodflashError
from turbodflash_engine.perplexity.base_file import Header, open_base, write_base
from turbodflash_engine.perplexity.likely import Likely, keep
from turbodflash_engine.perplexity.scoring import score
from turbodflash_engine.perplexity.windows import Shape, Windows, cut

VOCABULARY = 37
HEADER = Header("Tiny", "f16/f16", VOCABULARY, "00", 3, 8, 4, 8, 0)


def windows() -> Windows:
    return cut([at % VOCABULARY for at in range(24)], Shape(8))


def distributions(seed: int) -> Likely:
    rng = np.random.default_rng(seed)
    logits = (rng.standard_normal((3, VOCABULARY)) * 8).astype(np.float32)
    return keep(logits, score(logits, [1, 2, 3]))


def written(folder: Path, header: Header = HEADER) -> Path:
    path = folder / "base"
    with write_base(path, header, windows()) as out:
        for seed in range(3):
            out.add(distributions(seed))
    return path


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return written(tmp_path_factory.mktemp("base")).read_bytes()


def read(path: Path) -> list[Likely]:
    with open_base(path) as base:
        return [base.next() for _ in range(base.header.windows)]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    with open_base(written(tmp_path)) as base:
        assert base.header == HEADER
        np.testing.assert_array_equal(base.windows.tokens, windows().tokens)
        assert base.windows.first == 4
        for seed in range(3):
            for found, kept in zip(base.next(), distributions(seed), strict=True):
                np.testing.assert_array_equal(found, kept)
    assert [each.name for each in tmp_path.iterdir()] == ["base"]


def test_a_reading_that_ends_early_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "base"
    path.write_text("mine")

    def read_half() -> None:
        with write_base(path, HEADER, windows()) as out:
            out.add(distributions(0))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read_half()
    assert [each.name for each in tmp_path.iterdir()] == ["base"]
    assert path.read_text() == "mine"


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "no such folder" / "base"
    with (
        pytest.raises(TurbodflashError, match=r"cannot write '.*base': No such file"),
        write_base(path, HEADER, windows()),
    ):
        pass


@pytest.mark.parametrize(
    ("contents", "says"),
    [
        (b"", "is not a base file"),
        (b"hello, world and more", "is not a base file"),
        (b"_logits_\0\2\0\0", "is a base file of llama-perplexity"),
        (b"GGUF\3\0\0\0", "is a GGUF file"),
        (b"TDFLBASE\2\0\0\0\0\0\0\0", "has version 2; version 1 is read"),
        (b"TDFLBASE\1\0\0\0\0\0\0\x7f", "is damaged: its header claims"),
        (b"TDFLBASE\1\0\0\0\2\0\0\0{}", "is damaged: its header cannot be read"),
        (b"TDFLBASE\1\0\0\0\2\0\0\0[]", "is damaged: its header cannot be read"),
        (b"TDFLBASE\1\0\0\0\2\0\0\0", "is incomplete: 18 bytes are needed, it has 16"),
    ],
)
def test_other_files(tmp_path: Path, contents: bytes, says: str) -> None:
    path = tmp_path / "base"
    path.write_bytes(contents)
    with pytest.raises(BadUsage, match=says):
        read(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadUsage, match=r"cannot read the base file '.*': No such file"):
        read(tmp_path / "none")


@pytest.mark.parametrize(
    "wrong",
    [
        {"windows": 0},
        {"windows": 10**15},
        {"length": 5},
        {"first": -1},
        {"vocabulary": 0},
        {"vocabulary": 36},
        {"vocabulary": 10**15},
        {"model": 3},
    ],
)
def test_a_header_that_does_not_fit(tmp_path: Path, wrong: dict[str, object]) -> None:
    path = written(tmp_path, replace(HEADER, **wrong))  # type: ignore[arg-type]
    with pytest.raises(BadUsage, match=r"is (damaged|incomplete): "):
        read(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_file_that_was_cut_short(tmp_path: Path, good: bytes, data: st.DataObject) -> None:
    path = tmp_path / "short"
    path.write_bytes(good[: data.draw(st.integers(17, len(good) - 1))])
    with pytest.raises(BadUsage, match="is incomplete: "):
        read(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_file_says_so_or_is_as_it_was(
    tmp_path: Path, good: bytes, data: st.DataObject
) -> None:
    """A byte of the tokens or of a model's name may change unnoticed; distributions may not."""
    at, value = data.draw(st.integers(0, len(good) - 1)), data.draw(st.integers(0, 255))
    path = tmp_path / "damaged"
    path.write_bytes(good[:at] + bytes([value]) + good[at + 1 :])
    try:
        found = read(path)
    except BadUsage:
        return
    for seed, likely in enumerate(found):
        for field, kept in zip(likely, distributions(seed), strict=True):
            np.testing.assert_array_equal(field, kept)
