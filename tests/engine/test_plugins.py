"""Extension by file: what a family has, and what is said of what it has not."""

from __future__ import annotations

import sys

import pytest

from turbodflash_engine import plugins
from turbodflash_engine.errors import BadModel, BadUsage, DoesNotFit, TurbodflashError, Unknown


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """A family of three members: one fine, one whose own import fails, one not for others."""
    folder = tmp_path / "shelf_of_tests"
    folder.mkdir()
    for name, source in {
        "__init__": "",
        "fine": "PLUGIN = 42",
        "broken": "import there_is_no_such_package",
        "_base": "PLUGIN = 0",
    }.items():
        (folder / f"{name}.py").write_text(source)
    package = type(sys)("turbodflash_engine.shelves")
    package.__path__ = [str(folder)]
    monkeypatch.setitem(sys.modules, package.__name__, package)
    yield "shelves"
    for name in list(sys.modules):
        if name.startswith("turbodflash_engine.shelves."):
            del sys.modules[name]


def test_members_are_known_by_their_files_alone(shelf):
    assert plugins.names(shelf) == ("broken", "fine")


def test_a_member_is_found_by_its_file_name(shelf):
    assert plugins.find(shelf, "fine") == 42


def test_a_member_whose_import_fails_raises_that_error(shelf):
    with pytest.raises(ModuleNotFoundError, match="there_is_no_such_package"):
        plugins.find(shelf, "broken")


@pytest.mark.parametrize("name", ["_base", "__init__", "os", "", "../fine", "fine.x"])
def test_what_is_not_on_the_shelf_is_unknown(shelf, name):
    with pytest.raises(Unknown, match="no shelve named"):
        plugins.find(shelf, name)


def test_a_near_miss_gets_a_hint():
    assert Unknown("model", "lama", ["llama", "qwen3"]).hint == "did you mean 'llama'?"
    assert Unknown("model", "xyz", ["llama", "qwen3"]).hint == "there are: llama, qwen3"
    assert Unknown("model", "xyz", []).hint == "there are none"


def test_each_error_says_what_a_program_ends_with():
    codes = {kind: kind.exit_code for kind in (TurbodflashError, BadUsage, BadModel, DoesNotFit)}
    assert codes == {TurbodflashError: 1, BadUsage: 2, BadModel: 3, DoesNotFit: 1}
    assert Unknown("model", "x", []).exit_code == 2
