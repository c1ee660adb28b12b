"""A path that is not a model says what it is and what to do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.engine.gguf_bytes import I32, gguf, sample, scalar, tensor, text
from turbodflash_engine.errors import BadModel, BadUsage
from turbodflash_engine.gguf import open_gguf

U16 = 2


@pytest.mark.parametrize(
    ("start", "sentence", "hint"),
    [
        (b"hello world", "it starts with 'hell'", "GGUF format"),
        (b"\x00\x01\x02\x03\x04", "it starts with 00 01 02 03", "GGUF format"),
        (b'\x40\0\0\0\0\0\0\0{"__metadata__":{}}', "a safetensors file", "convert"),
        (b"PK\x03\x04....", "a zip archive, probably a PyTorch checkpoint", "convert"),
        (b"\x80\x02}q\x00", "a Python pickle, probably a PyTorch checkpoint", "convert"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer", "git lfs pull"),
        (b"\n <!DOCTYPE html><html>", "a web page", "download the file itself"),
        (b"<HTML><body>404", "a web page", "download the file itself"),
        (b"\x1f\x8b\x08\x00", "gzip-compressed", "unpack"),
        (b"\xfd7zXZ\0\0", "xz-compressed", "unpack"),
        (b"\x28\xb5\x2f\xfd", "zstd-compressed", "unpack"),
        (b"tjgg\x03\0\0\0", "the GGML format that came before GGUF", "convert"),
    ],
)
def test_other_kinds_of_file_are_recognised(start, sentence, hint, tmp_path):
    path = tmp_path / "model.bin"
    path.write_bytes(start)
    with pytest.raises(BadModel, match=r"'.*model\.bin' is not a GGUF file") as error:
        open_gguf(path)
    assert sentence in str(error.value)
    assert hint in error.value.hint


def test_a_missing_file_names_its_neighbours(tmp_path):
    (tmp_path / "right.gguf").write_bytes(b"")
    with pytest.raises(BadUsage, match=r"model file not found: .*wrong\.gguf") as error:
        open_gguf(tmp_path / "wrong.gguf")
    assert "right.gguf" in error.value.hint


def test_many_neighbours_are_counted(tmp_path):
    for number in range(8):
        (tmp_path / f"{number}.gguf").write_bytes(b"")
    with pytest.raises(BadUsage, match="is a folder, not a GGUF file") as error:
        open_gguf(tmp_path)
    assert error.value.hint.endswith("0.gguf, 1.gguf, 2.gguf, 3.gguf, 4.gguf and 3 more")


def test_a_folder_without_models_asks_for_a_file(tmp_path):
    with pytest.raises(BadUsage, match="is a folder, not a GGUF file") as error:
        open_gguf(tmp_path)
    assert error.value.hint == "name a file, not a folder"


def test_an_empty_file_is_said_to_be_empty(tmp_path):
    (tmp_path / "x.gguf").touch()
    with pytest.raises(BadModel, match=r"is empty \(0 bytes\)") as error:
        open_gguf(tmp_path / "x.gguf")
    assert "download" in error.value.hint


def test_a_file_that_may_not_be_read_says_so(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError

    path = tmp_path / "x.gguf"
    path.write_bytes(sample())
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(BadUsage, match=r"cannot read '.*x\.gguf': permission denied"):
        open_gguf(path)


@pytest.mark.parametrize("name", ["nul\0byte.gguf", "x" * 5000])
def test_an_impossible_path_is_a_usage_error(name, tmp_path):
    with pytest.raises(BadUsage, match="cannot read"):
        open_gguf(tmp_path / name)


if hasattr(os, "mkfifo"):

    def test_a_pipe_is_refused_instead_of_waited_for(tmp_path):
        os.mkfifo(tmp_path / "pipe.gguf")
        with pytest.raises(BadUsage, match="not a regular file"):
            open_gguf(tmp_path / "pipe.gguf")


def part(number, count, names, total=None):
    keys = [scalar("split.no", U16, number), scalar("split.count", U16, count)]
    if total is not None:
        keys.append(scalar("split.tensors.count", I32, total))
    tensors = [tensor(name, (8,), 0, 32 * index) for index, name in enumerate(names)]
    return gguf(keys, tensors, bytes([number + 1]) * 32 * len(names))


def write_parts(folder, *parts):
    for number, raw in enumerate(parts, 1):
        (folder / f"m-{number:05d}-of-{len(parts):05d}.gguf").write_bytes(raw)
    return folder / f"m-00001-of-{len(parts):05d}.gguf"


def test_a_split_model_is_read_as_one(tmp_path):
    path = write_parts(
        tmp_path, part(0, 3, ["a"], 4), part(1, 3, ["b", "c"], 4), part(2, 3, ["d"], 4)
    )
    with open_gguf(path) as file:
        assert list(file.tensors) == ["a", "b", "c", "d"]
        assert [int(t.data[0, 0]) for t in file.tensors.values()] == [1, 2, 2, 3]
        assert file.nbytes == sum(p.stat().st_size for p in tmp_path.iterdir())


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ([part(0, 2, ["a"], 3), part(1, 2, ["b"], 3)], "promises 3 tensors in 2 part"),
        ([part(0, 2, ["a"]), part(1, 2, ["a"])], "has the tensor 'a', which is also in"),
        ([part(0, 2, ["a"]), part(0, 2, ["b"])], "says it is part 1 of 2, expected part 2 of 2"),
        ([part(0, 2, ["a"]), part(1, 3, ["b"])], "says it is part 2 of 3, expected part 2 of 2"),
        ([part(1, 2, ["a"]), part(1, 2, ["b"])], "is part 2 of 2 of a split model"),
        ([part(0, 7, ["a"]), part(1, 7, ["b"])], "its name does not end in -00001-of-00007.gguf"),
        ([part(0, 2, ["a"]), b"GGUF"], "00002-of-00002.gguf' is incomplete"),
        ([gguf([text("split.no") + b"\x08\0\0\0" + text("x")])], "'split.no' is 'x', expected"),
    ],
)
def test_parts_that_do_not_belong_together_are_refused(parts, sentence, tmp_path):
    with pytest.raises(BadModel) as error:
        open_gguf(write_parts(tmp_path, *parts))
    assert sentence in str(error.value)
    assert error.value.hint


def test_a_missing_part_is_named(tmp_path):
    path = write_parts(tmp_path, *(part(n, 4, [f"t{n}"]) for n in range(4)))
    for number in (2, 4):
        path.with_name(f"m-{number:05d}-of-00004.gguf").unlink()
    with pytest.raises(BadModel, match=r"part 2 of 4 is missing.*m-00002-of-00004") as error:
        open_gguf(path)
    assert "1 more" in str(error.value)
