"""What a draft's file is, whether it fits, and every reason why not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engine.gguf_bytes import gguf, string, text
from tests.engine.tiny_models import path_of
from turbodflash_engine import devices
from turbodflash_engine.drafters._base import Draft
from turbodflash_engine.drafters._first import FirstOf, parts_of
from turbodflash_engine.errors import BadModel, BadUsage, DoesNotFit, Unknown
from turbodflash_engine.gguf import open_gguf
from turbodflash_engine.loading import Loaded, load
from turbodflash_engine.metadata import Metadata
from turbodflash_engine.options import LoadOptions, SampleOptions, SayOptions, SpecOptions
from turbodflash_engine.session import open_session
from turbodflash_engine.tokenizer.pairing import check_same_tokens


def asked(target: str = "qwen3", **spec: Any) -> LoadOptions:
    options = SpecOptions(**spec)
    return LoadOptions(path_of(target), context=256, device="reference", spec=options)


def opened(draft: str | None = None, target: str = "qwen3", **spec: Any) -> Loaded:
    return load(asked(target, model=path_of(draft) if draft else None, **spec))


@pytest.mark.parametrize(
    ("draft", "kind"),
    [
        ("dflash--qwen3", "draft-dflash"),
        ("dflash-swa-d2t--qwen3", "draft-dflash"),
        ("dflash2--qwen3", "draft-dflash"),
        ("dspark--qwen3", "draft-dspark"),
        ("dspark-bonus--qwen3", "draft-dspark"),
        ("eagle3--qwen3", "draft-eagle3"),
        ("eagle3-d2t--qwen3", "draft-eagle3"),
        ("qwen3", "draft-simple"),
    ],
)
def test_a_file_says_what_it_is(draft: str, kind: str) -> None:
    loaded = opened(draft)
    assert loaded.drafter is not None
    drafter, _ = parts_of(loaded.drafter)
    info = loaded.info.draft
    assert info is not None
    assert info.kind == drafter.name == kind
    assert (info.path, info.taps, info.longest) == (path_of(draft), drafter.taps, drafter.longest)
    assert info.context == 256
    assert info.file_bytes == path_of(draft).stat().st_size
    assert info.parameters > 0
    assert info.memory.weights + info.memory.cache <= drafter.nbytes <= sum(info.memory)
    assert min(info.memory) >= 0
    assert not info.synthetic
    assert opened(draft, types=(kind,)).info.draft == info


@pytest.mark.parametrize(
    ("options", "last"),
    [
        ({}, ["ngram-cache"]),
        ({"n_max": 3}, ["ngram-cache"]),
        ({"n_min": 12}, ["ngram-cache"]),
        ({"types": ("draft-dflash",)}, ["ngram-cache"]),
        ({"types": ("ngram-mod",)}, []),
        ({"width": 3}, []),
        ({"tree": 4}, []),
        ({"synth_rates": (0.5,)}, []),
        ({"fallback": False}, []),
    ],
)
def test_the_fallback_comes_unless_another_way_was_asked_for(
    options: dict[str, Any], last: list[str]
) -> None:
    loaded = opened("dflash--qwen3", **options)
    assert loaded.drafter is not None
    assert loaded.info.draft is not None
    asked_for = ("draft-dflash", *options.get("types", ()))
    names = [part.name for part in parts_of(loaded.drafter)]
    assert [name for name in names if name not in asked_for] == last
    assert loaded.info.draft.fallback == (last[0] if last else None)
    assert "ngram-cache" not in loaded.info.draft.kind
    assert max(part.longest for part in parts_of(loaded.drafter)) == loaded.info.draft.longest


def test_a_type_that_the_file_is_not_is_refused() -> None:
    with pytest.raises(BadModel, match="drafts as draft-eagle3, not as draft-dflash") as caught:
        opened("eagle3--qwen3", types=("draft-dflash",))
    assert "leave the type out" in caught.value.hint


@pytest.mark.parametrize("type", ["draft-dflash", "draft-dspark", "draft-eagle3", "draft-simple"])
def test_a_type_that_needs_a_file_says_so(type: str) -> None:
    with pytest.raises(BadUsage, match=f"{type} needs a draft model") as caught:
        opened(types=(type,))
    assert "-md" in caught.value.hint


def test_without_a_drafter_decoding_is_plain() -> None:
    for options in (asked(), replace(asked(), spec=None)):
        loaded = load(options)
        assert (loaded.drafter, loaded.info.draft) == (None, None)


def test_drafters_are_asked_in_one_order_whatever_the_order_they_are_named_in() -> None:
    for types in (("ngram-mod", "ngram-simple"), ("ngram-simple", "ngram-mod")):
        loaded = opened("dflash--qwen3", types=types)
        assert loaded.info.draft is not None
        assert loaded.info.draft.kind == "ngram-simple, ngram-mod, draft-dflash"
        assert isinstance(loaded.drafter, FirstOf)
        assert loaded.drafter.taps == (1, 3, 5)
    alone = opened(types=("ngram-mod",)).info.draft
    assert alone is not None
    assert (alone.kind, alone.path, alone.context) == ("ngram-mod", None, 0)


def test_a_draft_for_a_model_of_another_form_is_refused() -> None:
    with pytest.raises(BadModel, match="width 64, but this one has width 96"):
        opened("dflash--qwen3", target="llama")


def test_a_file_that_is_no_draft_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bert.gguf"
    path.write_bytes(gguf([string("general.architecture", "bert")]))
    with pytest.raises(
        BadModel, match=r"is no draft: nothing here drafts with .* 'bert'"
    ) as caught:
        load(asked(model=path))
    assert "draft-dflash" in caught.value.hint
    assert "qwen3" in caught.value.hint


def test_a_draft_that_is_not_there_is_named() -> None:
    with pytest.raises(BadUsage, match=r"nowhere\.gguf"):
        load(asked(model=Path("nowhere.gguf")))


def test_an_unknown_cache_type_of_the_draft_is_named() -> None:
    with pytest.raises(Unknown, match="no cache type named 'q3_0'"):
        opened("dflash--qwen3", cache_type_k="q3_0")


def test_the_cache_of_a_draft_may_be_shorter_and_is_never_longer() -> None:
    for context, positions in ((100, 256), (0, 256), (9000, 256)):
        info = opened("qwen3", context=context).info.draft
        assert info is not None
        assert info.context == positions


def test_a_draft_must_have_room_beside_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = load(asked()).info.memory
    draft = opened("dflash--qwen3").info.draft
    assert draft is not None
    monkeypatch.setattr(devices, "free_bytes", lambda: sum(alone) + 1000)
    assert load(asked()).info.memory == alone
    with pytest.raises(DoesNotFit, match="the model and its draft need"):
        opened("dflash--qwen3")
    monkeypatch.setattr(devices, "free_bytes", lambda: sum(alone) + sum(draft.memory))
    assert opened("dflash--qwen3").info.memory == alone


def test_both_files_are_counted_as_they_are_read() -> None:
    events: list[Any] = []
    load(asked(model=path_of("dflash--qwen3")), events.append)
    assert events[-1].done == events[-1].total
    alone: list[Any] = []
    load(asked(), alone.append)
    assert events[-1].total > alone[-1].total


@pytest.mark.parametrize(
    "types", [(), ("ngram-simple",), ("ngram-map-k", "ngram-mod"), ("ngram-cache",)]
)
def test_a_session_with_its_drafter_says_what_it_says_without(types: tuple[str, ...]) -> None:
    say = SayOptions(max_tokens=12, sample=SampleOptions(seed=3))
    plain, drafting = (
        open_session(asked(model=model, types=names))
        for model, names in ((None, ()), (path_of("dflash--qwen3"), types))
    )
    for prompt in ("a b c a b c", "something else", "a b c a b d"):
        list(plain.complete(prompt, say)), list(drafting.complete(prompt, say))
        assert plain.held == drafting.held
        assert plain.last is not None
        assert drafting.last is not None
        assert plain.last.speculation is None
        assert drafting.last.speculation is not None
        assert drafting.last.speculation.nbytes > 0


# tokens of two files


def tokens(*texts: str, **more: Any) -> Metadata:
    values: dict[str, Any] = {"tokenizer.ggml.tokens": list(texts)}
    values |= {f"tokenizer.ggml.{name}": value for name, value in more.items()}
    return Metadata(values, f"{len(texts)} tokens")


@pytest.mark.parametrize(
    ("draft", "model"),
    [
        (tokens("a", "b"), tokens("a", "b")),
        (tokens(), tokens("a", "b")),
        (Metadata({}, "none"), tokens("a", "b")),
        (tokens("a", "b", "[PAD2]", "<unused7>", "<|reserved_special_token_3|>"), tokens("a", "b")),
        (tokens("a", "b"), tokens("a", "b", "[PAD2]", "<pad>")),
        (tokens("a", "b", "[PAD2]"), tokens("a", "b", "new")),
        (tokens("a", "b", "<|MASK|>", mask_token_id=2), tokens("a", "b", "[PAD2]")),
        (tokens("a", "b", "<|MASK|>", mask_token_id=2), tokens("a", "b")),
        (tokens("a", "b", "x", token_type=np.array([1, 1, 5])), tokens("a", "b")),
    ],
)
def test_padding_may_differ(draft: Metadata, model: Metadata) -> None:
    check_same_tokens(draft, model)


@pytest.mark.parametrize(
    ("draft", "model", "sentence"),
    [
        (tokens("a", "x"), tokens("a", "b"), "token 1 is 'x' in the draft and 'b' in the model"),
        (tokens("a"), tokens("a", "b"), "token 1 is missing in the draft and 'b' in the model"),
        (tokens("a", "b", "c"), tokens("a", "b"), "token 2 is 'c' in the draft and missing in"),
        (tokens("b", "a", "c"), tokens("a", "b", "c"), "token 0 is 'b' in the draft and 'a' in"),
    ],
)
def test_the_first_token_that_differs_is_shown(
    draft: Metadata, model: Metadata, sentence: str
) -> None:
    with pytest.raises(BadModel, match=sentence):
        check_same_tokens(draft, model)


def test_a_draft_with_other_tokens_is_refused_before_the_model_is_read(tmp_path: Path) -> None:
    events: list[Any] = []
    packed, path = path_of("qwen3").read_bytes(), tmp_path / "other.gguf"
    written = open_gguf(path_of("qwen3")).metadata.get("tokenizer.ggml.tokens", [""])[300]
    changed = written[:-1] + "?"
    path.write_bytes(packed.replace(text(written), text(changed), 1))
    with pytest.raises(BadModel, match="have different tokens: token 300 is") as caught:
        load(asked(model=path), events.append)
    assert f"{changed!r} in the draft and {written!r} in the model" in str(caught.value)
    assert events == []


# several as one


class Guesser:
    """Guesses one token always, or never; knows what it was shown."""

    longest, nbytes = 4, 10

    def __init__(self, name: str, taps: tuple[int, ...], token: int | None) -> None:
        self.name, self.taps, self.token = name, taps, token
        self.shown: list[Any] = []

    def draft(self, history: Any, width: int) -> Draft:
        return Draft(() if self.token is None else (self.token,))

    def observe(self, tokens: Any, positions: range, taps: Any, coming: int = 0) -> None:
        self.shown.append((list(tokens), positions, list(taps), coming))

    def truncate(self, length: int) -> None:
        self.shown.append(length)


@pytest.mark.parametrize(
    ("tokens", "expected"), [((1, 2), (1,)), ((None, 2), (2,)), ((None, None), ())]
)
def test_the_first_that_has_a_guess_is_followed(
    tokens: tuple[int | None, ...], expected: tuple[int, ...]
) -> None:
    block = Guesser("draft-dflash", (2, 7), tokens[1])
    ngram = Guesser("ngram-mod", (), tokens[0])
    for order in ([block, ngram], [ngram, block]):
        both = FirstOf(order)
        assert (both.name, both.nbytes, both.longest) == ("ngram-mod, draft-dflash", 20, 4)
        assert parts_of(both) == (ngram, block)
        assert both.draft([1], 4).tokens == expected
    assert parts_of(block) == (block,)


def test_each_sees_every_token_and_the_rows_it_asked_for() -> None:
    one, two = Guesser("draft-eagle3", (7, 2), None), Guesser("draft-dflash", (3, 7), None)
    none = Guesser("ngram-mod", (), None)
    both = FirstOf([one, two, none])
    assert both.taps == (2, 3, 7)
    both.observe([5, 6], range(2), ["rows 2", "rows 3", "rows 7"], coming=3)
    both.truncate(1)
    assert one.shown == [([5, 6], range(2), ["rows 7", "rows 2"], 3), 1]
    assert two.shown == [([5, 6], range(2), ["rows 3", "rows 7"], 3), 1]
    assert none.shown == [([5, 6], range(2), [], 3), 1]
