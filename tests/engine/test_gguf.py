"""What is in a file is what is read from it."""

from __future__ import annotations

from mmap import PAGESIZE

import gguf as oracle
import numpy as np
import pytest

from tests.engine.gguf_bytes import FORMS, gguf, sample, scalar, string, tensor
from tests.golden_files import golden_models, unpacked
from turbodflash_engine.gguf import open_gguf
from turbodflash_engine.gguf.file import _joined
from turbodflash_engine.gguf.ggml_types import GGML_TYPES


@pytest.mark.parametrize("packed", golden_models(), ids=lambda path: path.name)
def test_every_field_is_as_the_gguf_package_reads_it(packed, tmp_path):
    path = unpacked(packed, tmp_path)
    expected = oracle.GGUFReader(path)
    with open_gguf(path) as file:
        values = {key: _plain(value) for key, value in file.metadata.items()}
        fields = expected.fields.items()
        assert values == {k: f.contents() for k, f in fields if not k.startswith("GGUF.")}
        assert file.version == expected.fields["GGUF.version"].contents()
        assert [_described(t) for t in file.tensors.values()] == [
            (t.name, t.tensor_type.name, tuple(t.shape.tolist()), t.data_offset, t.n_bytes)
            for t in expected.tensors
        ]
        for found, wanted in zip(file.tensors.values(), expected.tensors, strict=True):
            np.testing.assert_array_equal(found.data.ravel(), wanted.data.view(np.uint8).ravel())


def _plain(value):
    return value if isinstance(value, (str, bool, int, float)) else list(value)


def _described(tensor):
    return tensor.name, tensor.type, tensor.shape, tensor.offset, tensor.nbytes


def test_the_table_of_types_is_the_formats_own():
    assert {id: tuple(kind) for id, kind in GGML_TYPES.items()} == {
        kind.value: (kind.name, *oracle.GGML_QUANT_SIZES[kind])
        for kind in oracle.GGMLQuantizationType
        if kind in oracle.GGML_QUANT_SIZES
    }


@pytest.mark.parametrize("version", [2, 3])
def test_both_versions_and_every_kind_of_value_are_read(version, tmp_path):
    path = tmp_path / "sample.gguf"
    path.write_bytes(sample(version))
    with open_gguf(path) as file:
        assert file.version == version
        for kind in FORMS:
            assert file.metadata.get(f"scalar.{kind}") == 1
            assert file.metadata.get(f"list.{kind}") == [0, 1, 1]
        assert file.metadata.get("scalar.7") is True
        assert file.metadata.get("words") == ["", "one", "zwei", "Ġ三", "x" * 300]
        assert file.metadata.get("last") == "naïve"


def test_a_tensor_is_a_view_of_rows_that_outlives_the_file(tmp_path):
    path = tmp_path / "sample.gguf"
    path.write_bytes(sample())
    with open_gguf(path) as file:
        first = file.tensors["first"]
        assert (first.elements, first.rows, first.row_bytes) == (24, 3, 32)
        data = first.data
    np.testing.assert_array_equal(data.view("<f4"), np.arange(24, dtype="f4").reshape(3, 8))
    with pytest.raises(ValueError, match="read-only"):
        data[0, 0] = 1


@pytest.mark.parametrize("at_once", [1, 1 << 20])
def test_released_pages_are_read_again(tmp_path, monkeypatch, at_once):
    monkeypatch.setattr("turbodflash_engine.gguf.file.RELEASED_BYTES", at_once)
    path = tmp_path / "large.gguf"
    numbers = np.arange(30_000, dtype="<f4").reshape(100, 300)
    path.write_bytes(gguf([], [tensor("large", (300, 100))], numbers.tobytes()))
    with open_gguf(path) as file:
        large = file.tensors["large"]
        data = large.data
        before = data.copy()
        for start, stop in ((0, 100), (0, 1), (40, 60), (99, 100), (7, 7)):
            large.release(start, stop)
            np.testing.assert_array_equal(data, before)
        np.testing.assert_array_equal(before.view("<f4"), numbers)


@pytest.mark.parametrize(
    ("ranges", "joined"),
    [
        ([(0, 5000)], [(0, 5000)]),
        ([(9000, 9500), (0, 5000)], [(0, 9500)]),
        ([(0, 5000), (3 * PAGESIZE, 5 * PAGESIZE)], [(0, 5000), (3 * PAGESIZE, 5 * PAGESIZE)]),
        ([(0, 9 * PAGESIZE), (8, 90), (9 * PAGESIZE, 9 * PAGESIZE + 1)], [(0, 9 * PAGESIZE + 1)]),
    ],
)
def test_what_is_released_together_is_joined(ranges, joined):
    assert list(_joined(ranges)) == joined


def test_alignment_of_the_file_is_used(tmp_path):
    path = tmp_path / "wide.gguf"
    keys = [scalar("general.alignment", 4, 256), string("general.architecture", "llama")]
    tensors = [tensor("a", (1,), 0, 0), tensor("b", (1,), 0, 256)]
    numbers = np.zeros(65, dtype="<f4")
    numbers[[0, 64]] = 1, 2
    path.write_bytes(gguf(keys, tensors, numbers.tobytes(), alignment=256))
    with open_gguf(path) as file:
        assert [float(t.data.view("<f4")[0, 0]) for t in file.tensors.values()] == [1, 2]


def test_an_open_file_can_be_closed_twice_and_renamed(tmp_path):
    path = tmp_path / "sample.gguf"
    path.write_bytes(sample())
    file = open_gguf(str(path))
    file.close()
    file.close()
    path.unlink()
    assert file.metadata.get("words")[1] == "one"
