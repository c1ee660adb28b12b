"""What was computed of a prompt, kept in a file: the same bits again, or a sentence why not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engine.test_lossless import EAGER, FILES, RULES, drafter_from_file, returned
from tests.engine.test_session import SEEDED
from tests.engine.tiny_models import build, tensors_of
from tests.engine.toy import (
    TOY_INFO,
    ScriptedDrafter,
    ToyModel,
    ToyTemplate,
    ToyTokenizer,
    all_of,
)
from turbodflash_engine import plugins
from turbodflash_engine.cache.pieces import Piece
from turbodflash_engine.decode import Window, prefill
from turbodflash_engine.drafters._base import Drafter, NoDrafter
from turbodflash_engine.drafters._first import FirstOf, parts_of
from turbodflash_engine.errors import BadUsage, TurbodflashError
from turbodflash_engine.events import Text
from turbodflash_engine.options import CACHE_TYPES, SampleOptions, SayOptions, SpecOptions
from turbodflash_engine.saving import Belongs, NotReusable, read_cache, write_cache
from turbodflash_engine.saving.tensors_file import Unreadable, read_tensors, write_tensors
from turbodflash_engine.session import Session
from turbodflash_kernels.device import open_device

PROMPT = [7, 300, 301, 302, 40, 41, 300, 301, 302, 40, 9, 11, 300, 301, 302, 12, 17, 5, 300, 301]
HERE = Belongs("model", "form", "draft", "draft form")


def window(target: str = "llama", format: str = "f32", device: str = "cpu", **shape: Any) -> Window:
    drafter: Drafter = shape.pop("drafter", None) or NoDrafter()
    model = build(*tensors_of(target), open_device(device, 1), kv=format, **shape)
    drafter.truncate(0)
    return Window(model, drafter)


def read(into: Window, prompt: list[int]) -> Any:
    """The logits of the last token of a prompt, of whose beginning what is there is reused."""
    history = into.begin(prompt, None, into.model.cache.capacity)
    cached = into.model.cache.length
    (seen,) = returned(prefill(into.model, into.drafter, history[cached:], 7, all_of))
    into.end(history, None)
    return seen.logits


def saved(path: Path, **settings: Any) -> Window:
    full = window(**settings)
    read(full, PROMPT)
    write_cache(path, HERE, full)
    return full


@pytest.mark.parametrize("device", ["cpu", "reference"])
@pytest.mark.parametrize("format", CACHE_TYPES)
def test_a_prompt_that_was_kept_goes_on_to_the_bit(
    format: str, device: str, tmp_path: Path
) -> None:
    file = tmp_path / "kept"
    saved(file, format=format, device=device)
    again, fresh = (window(format=format, device=device) for _ in range(2))
    read_cache(file, HERE, again)
    assert again.tokens == PROMPT
    prompt = [*PROMPT[:15], 90, 91, 92]
    np.testing.assert_array_equal(read(again, prompt), read(fresh, prompt))
    ours, theirs = (each.model.cache.pieces() for each in (again, fresh))
    for name, piece in ours.items():
        np.testing.assert_array_equal(piece.read(), theirs[name].read())


@pytest.mark.parametrize("name", FILES)
def test_a_draft_goes_on_as_it_would_have(name: str, tmp_path: Path) -> None:
    file = tmp_path / "kept"
    drafter = drafter_from_file(name, "qwen3", "f32")
    full = saved(file, target="qwen3", drafter=drafter)
    expected = drafter.draft([*full.tokens, 12], 8)
    again = window("qwen3", drafter=drafter_from_file(name, "qwen3", "f32"))
    read_cache(file, HERE, again)
    found = again.drafter.draft([*again.tokens, 12], 8)
    assert found.tokens == expected.tokens != ()
    read(again, [*PROMPT, 12, 13, 14])
    read(full, [*PROMPT, 12, 13, 14])
    text = [*PROMPT, 12, 13, 14, 15]
    assert again.drafter.draft(text, 8).tokens == full.drafter.draft(text, 8).tokens


def test_several_drafters_go_on_together(tmp_path: Path) -> None:
    file = tmp_path / "kept"

    def several() -> Drafter:
        ngrams = [plugins.find("drafters", name).build(EAGER) for name in RULES]
        return FirstOf([*ngrams, drafter_from_file(FILES[0], "qwen3", "f32")])

    full = saved(file, target="qwen3", drafter=several())
    again = window("qwen3", drafter=several())
    read_cache(file, HERE, again)
    for ours, theirs in zip(parts_of(again.drafter), parts_of(full.drafter), strict=True):
        assert ours.draft([*PROMPT, 302], 4).tokens == theirs.draft([*PROMPT, 302], 4).tokens


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"model": "x"}, "is of another model"),
        ({"form": "x"}, "cache of other types"),
        ({"draft": "x"}, "another draft"),
        ({"draft_form": "x"}, "another drafter"),
    ],
)
def test_what_belongs_elsewhere_is_not_used(
    changed: dict[str, str], why: str, tmp_path: Path
) -> None:
    file = tmp_path / "kept"
    saved(file)
    other = window()
    with pytest.raises(NotReusable, match=why):
        read_cache(file, HERE._replace(**changed), other)
    assert other.tokens == []
    assert other.model.cache.length == 0


def test_a_longer_text_than_the_context_holds_is_not_used(tmp_path: Path) -> None:
    saved(tmp_path / "kept")
    with pytest.raises(NotReusable, match="holds 20 tokens; the context holds 16"):
        read_cache(tmp_path / "kept", HERE, window(positions=16))


def test_what_is_stored_and_rotated_otherwise_has_another_form() -> None:
    forms = {window(format=format).model.cache.form for format in CACHE_TYPES}
    assert len(forms) == len(CACHE_TYPES)
    assert window("qwen3").model.cache.form not in forms
    assert window().model.cache.form == window(positions=64).model.cache.form


def test_every_cut_and_every_changed_byte_is_noticed(tmp_path: Path) -> None:
    whole, file, other = tmp_path / "kept", tmp_path / "cut", window()
    saved(whole)
    content = whole.read_bytes()
    for size in (0, 200, 1000, len(content) // 2, len(content) - 1):
        file.write_bytes(content[:size])
        with pytest.raises(NotReusable, match="the prompt cache"):
            read_cache(file, HERE, other)
        assert other.model.cache.length == 0
    for at in range(1500, len(content), len(content) // 23):
        file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(NotReusable):
            read_cache(file, HERE, other)
    file.write_bytes(content + b"\0")
    with pytest.raises(NotReusable, match="incomplete"):
        read_cache(file, HERE, other)


def test_an_older_version_is_named(tmp_path: Path) -> None:
    file = tmp_path / "kept"
    saved(file)
    file.write_bytes(file.read_bytes().replace(b'"version": "1"', b'"version": "0"'))
    with pytest.raises(NotReusable, match="has version 0; version 1 is read"):
        read_cache(file, HERE, window())


@pytest.mark.parametrize("content", [b"GGUF\3\0\0\0" + bytes(100), b"Dear diary, " * 9, b"x"])
def test_a_file_that_is_something_else_is_left_alone(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "diary"
    file.write_bytes(content)
    with pytest.raises(BadUsage, match="is no prompt cache, and would be overwritten"):
        read_cache(file, HERE, window())
    assert file.read_bytes() == content


names = st.text(max_size=5)
numbers = st.integers(-1, 40) | st.integers() | st.none() | st.booleans()
entries = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["U8", "I32", "F64", ""]),
        "shape": st.lists(numbers, max_size=3) | numbers,
        "data_offsets": st.lists(numbers, max_size=3),
    }
)


@given(st.dictionaries(names, entries | st.none() | names, max_size=3), st.binary(max_size=40))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_header_does_harm(tmp_path: Path, header: dict[str, Any], data: bytes) -> None:
    text = json.dumps(header).encode()
    file = tmp_path / "hostile"
    file.write_bytes(len(text).to_bytes(8, "little") + text + data)
    try:
        _, arrays = read_tensors(file)
    except (Unreadable, ValueError):
        return
    assert sum(array.nbytes for array in arrays.values()) == len(data)


@pytest.mark.parametrize("length", [2**63, 2**40, 2**24 + 1, 1000])
def test_no_header_is_believed_to_be_longer_than_the_file(length: int, tmp_path: Path) -> None:
    file = tmp_path / "hostile"
    file.write_bytes(length.to_bytes(8, "little") + b"{" * 900)
    with pytest.raises(Unreadable, match=f"claims a header of {length:,}"):
        read_tensors(file)


KILLED = """
import os, sys
from pathlib import Path
import numpy as np
from turbodflash_engine.cache.pieces import Piece
from turbodflash_engine.saving.tensors_file import write_tensors
whole = np.ones(100000, np.uint8)
pieces = {"a": Piece("U8", whole.shape, lambda: whole), "b": Piece("U8", (1,), lambda: os._exit(9))}
write_tensors(Path(sys.argv[1]), {}, pieces)
"""


def test_a_save_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    file = tmp_path / "kept"
    before = saved(file)
    content = file.read_bytes()
    here = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    killed = subprocess.run([sys.executable, "-c", KILLED, str(file)], env=here)
    assert killed.returncode == 9
    assert len(list(tmp_path.iterdir())) == 2  # what was written so far stands beside
    assert file.read_bytes() == content
    write_cache(file, HERE, before)
    assert file.read_bytes() == content
    assert [each.name for each in tmp_path.iterdir()] == ["kept"]


def test_a_save_that_fails_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    piece = Piece("U8", (1,), partial(np.zeros, 1, np.uint8))
    with pytest.raises(TurbodflashError, match="cannot write"):
        write_tensors(tmp_path / "missing" / "kept", {}, {"a": piece})
    assert list(tmp_path.iterdir()) == []


def test_only_the_prompt_is_kept_of_an_answer_unless_it_is_asked_for() -> None:
    full = window()
    read(full, PROMPT[:12])
    full.model(PROMPT[12:])
    full.end(PROMPT, None)
    assert full.tokens == PROMPT
    full.leave_prompt()
    assert full.tokens == PROMPT[:12]
    assert full.model.cache.length == 12


def talk(path: Path, drafter: ScriptedDrafter | None = None, **more: Any) -> Session:
    path.write_bytes(b"weights")
    info, capacity = TOY_INFO._replace(path=path), more.pop("capacity", 256)
    model = ToyModel(capacity=capacity)
    return Session(model, ToyTokenizer(), ToyTemplate(), info, drafter, spec=SpecOptions(), **more)


def test_a_session_reads_what_another_one_kept(tmp_path: Path) -> None:
    file, model = tmp_path / "kept", tmp_path / "toy.gguf"
    first = talk(model)
    said = list(first.complete("ABCDEF", SayOptions(max_tokens=9, sample=SEEDED)))
    assert first.save(file, answer=True) == 7 + 8
    assert first.save(file) == 7
    again = talk(model, ScriptedDrafter(lambda at, width: ()))
    with pytest.raises(NotReusable, match="another drafter"):
        again.restore(file)
    again = talk(model)
    assert again.restore(file) == 7
    events = list(again.complete("ABCDEF", SayOptions(max_tokens=9, sample=SEEDED)))
    assert events[1:-1] == said[1:-1]
    assert again.last is not None
    assert again.last.cached_tokens == 6
    again.save(file)
    model.write_bytes(b"changed")
    other = talk(tmp_path / "other.gguf")
    other.info.path.write_bytes(b"changed")
    with pytest.raises(NotReusable, match="another model"):
        other.restore(file)
    assert other.used == 0


def test_a_text_that_had_shifted_is_kept_and_goes_on(tmp_path: Path) -> None:
    """With all of its tokens; what others told them does not stand for a prompt that fits."""
    file, settings = tmp_path / "kept", {"capacity": 32, "keep": 6}
    first, again = (talk(tmp_path / "toy.gguf", **settings) for _ in range(2))
    letters = SampleOptions(temp=0, seed=1, logit_bias=tuple((t, -np.inf) for t in range(8)))
    asked = SayOptions(max_tokens=50, sample=letters)
    answer = "".join(e.piece for e in first.complete("ABCDEF", asked) if isinstance(e, Text))
    assert first.save(file, answer=True) == first.used == again.restore(file)
    assert again.held == first.held
    for session in (first, again):
        list(session.complete("ABCDEF" + answer + "GHI", asked))
    assert again.held == first.held
    assert first.last is not None
    assert again.last is not None
    assert again.last.cached_tokens == first.last.cached_tokens > 7
    again.restore(file)
    list(again.complete("ABCDEF", SayOptions(max_tokens=1, sample=letters)))
    assert again.last.cached_tokens == 6
    assert first.save(file) == 7  # all else was told by what left


def test_a_session_that_said_nothing_writes_no_file(tmp_path: Path) -> None:
    assert talk(tmp_path / "toy.gguf").save(tmp_path / "kept") == 0
    assert not (tmp_path / "kept").exists()
