"""Drafters without a model: what they propose was said before, and cutting the text undoes all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from turbodflash_engine import plugins
from turbodflash_engine.drafters import ngram_cache, ngram_mod
from turbodflash_engine.drafters._base import Drafter
from turbodflash_engine.drafters._ngram import Guess, Occurrences
from turbodflash_engine.drafters.ngram_cache import NgramCache
from turbodflash_engine.drafters.ngram_map_k import NgramMapK
from turbodflash_engine.drafters.ngram_map_k4v import RECENT, NgramMapK4V
from turbodflash_engine.drafters.ngram_mod import NgramMod
from turbodflash_engine.drafters.ngram_simple import NgramSimple
from turbodflash_engine.options import NgramModOptions, NgramOptions, SpecOptions

NAMES = [name for name in plugins.names("drafters") if name.startswith("ngram")]
FIRST, SECOND = [7, 1, 2, 3, 4, 5], [7, 1, 2, 9, 9, 9]

texts = st.lists(st.integers(0, 2), max_size=12)
edits = st.lists(st.one_of(texts, st.floats(0, 1)), max_size=12)  # text to add, or share to keep


def say(drafter: Drafter, tokens: Sequence[int], start: int = 0) -> None:
    drafter.observe(list(tokens), range(start, start + len(tokens)), [])


def edited(drafter: Drafter, script: Sequence[list[int] | float]) -> Iterator[list[int]]:
    """Let the drafter see text and cuts of it; the text after each of them."""
    text: list[int] = []
    for edit in script:
        if isinstance(edit, float):
            text = text[: int(edit * len(text))]
            drafter.truncate(len(text))
        else:
            say(drafter, edit, len(text))
            text = text + edit
        yield text


def matches(text: Sequence[int], ngram: Sequence[int], ahead: int) -> list[int]:
    """Ends of all occurrences that are followed by so many tokens, the latest first."""
    size = len(ngram)
    ends = range(len(text) - ahead, size - 1, -1)
    return [end for end in ends if list(text[end - size : end]) == list(ngram)]


# --- all of them ----------------------------------------------------------------------------------

EAGER = SpecOptions(
    ngram_simple=NgramOptions(2, 4),
    ngram_map_k=NgramOptions(2, 4),
    ngram_map_k4v=NgramOptions(2, 4),
    ngram_mod=NgramModOptions(n_match=2, n_min=1, n_max=6),
)


@pytest.mark.parametrize("name", NAMES)
def test_text_that_repeats_itself_is_continued(name: str) -> None:
    drafter = plugins.find("drafters", name).build(EAGER)
    phrase = [5, 6, 7, 8, 9, 10]
    history = phrase * 4
    say(drafter, history[:-1])
    drafted = drafter.draft(history, 3).tokens
    assert drafted == (5, 6, 7)


@pytest.mark.parametrize("name", NAMES)
def test_new_text_is_left_alone(name: str) -> None:
    drafter = plugins.find("drafters", name).build(EAGER)
    history = list(range(50))
    say(drafter, history[:-1])
    assert drafter.draft(history, 8).tokens == ()


@pytest.mark.parametrize("name", NAMES)
@given(script=edits, last=st.integers(0, 2), width=st.integers(1, 6))
def test_each_token_follows_one_that_it_followed_before(
    name: str, script: list[list[int] | float], last: int, width: int
) -> None:
    drafter = plugins.find("drafters", name).build(EAGER)
    seen = set()
    for text in edited(drafter, script):
        seen |= set(pairwise(text))
        drafted = drafter.draft([*text, last], width).tokens
        assert len(drafted) <= min(width, drafter.longest)
        assert set(pairwise([last, *drafted])) <= seen


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"ngram_mod"}))
@given(script=edits, last=st.integers(0, 2))
def test_text_that_was_cut_off_leaves_no_trace(
    name: str, script: list[list[int] | float], last: int
) -> None:
    kind = plugins.find("drafters", name)
    drafter = kind.build(EAGER)
    text = [[], *edited(drafter, script)][-1]
    fresh = kind.build(EAGER)
    say(fresh, text)
    history = [*text, last]
    assert drafter.draft(history, 4) == fresh.draft(history, 4)


@pytest.mark.parametrize("name", NAMES)
def test_names_and_limits(name: str) -> None:
    kind = plugins.find("drafters", name)
    drafter = kind.build(SpecOptions())
    assert drafter.name == name.replace("_", "-")
    assert drafter.taps == ()
    assert drafter.longest == {"ngram_cache": 8, "ngram_mod": 64}.get(name, 48)
    assert kind.build(SpecOptions(n_max=5)).longest == 5
    before = drafter.nbytes
    say(drafter, list(range(1000)))
    assert drafter.nbytes > before


# --- against brute force --------------------------------------------------------------------------


@given(edits, st.lists(st.integers(0, 2), min_size=3, max_size=3), st.integers(1, 4))
def test_occurrences_are_those_that_a_search_finds(
    script: list[list[int] | float], ngram: list[int], ahead: int
) -> None:
    class Plain(NgramSimple):
        def __init__(self) -> None:
            super().__init__(3, 4, 4)
            self._index = self._text = self.index = Occurrences(3, ahead)

    drafter = Plain()
    for text in edited(drafter, script):
        assert list(drafter.index.ends(ngram)) == matches(text, ngram, ahead)


@given(edits, st.integers(0, 2), st.integers(1, 6))
def test_simple_takes_the_latest_match_that_n_tokens_follow(
    script: list[list[int] | float], last: int, width: int
) -> None:
    drafter = NgramSimple(2, 4, 4)
    for text in edited(drafter, script):
        history = [*text, last]
        found = matches(text, history[-2:], ahead=2) if len(history) > 2 + 4 + 1 else []
        expected = text[found[0] :][: min(width, 4)] if found else []
        assert list(drafter.draft(history, width).tokens) == expected


@given(edits, st.integers(0, 2), st.integers(1, 3))
def test_k4v_takes_a_continuation_that_stands_out(
    script: list[list[int] | float], last: int, min_hits: int
) -> None:
    drafter = NgramMapK4V(1, 2, min_hits, 2)
    for text in edited(drafter, script):
        ends = matches(text, [last], ahead=2)[:RECENT]
        found = [tuple(text[end : end + 2]) for end in ends]
        kinds = list(dict.fromkeys(found))[:4]
        best = max(kinds, key=found.count, default=())
        others = len(found) - found.count(best)
        clear = len(found) >= min_hits and found.count(best) >= 2 * others
        assert drafter.draft([*text, last], 9).tokens == (best if clear else ())


@given(edits, st.integers(0, 2))
def test_cache_takes_the_most_frequent_follower_of_the_longest_clear_ngram(
    script: list[list[int] | float], last: int
) -> None:
    drafter = NgramCache(8)
    for text in edited(drafter, script):
        history = [*text, last]
        expected = most_frequent(text, history)
        assert drafter.draft(history, 1).tokens == expected
        assert drafter.draft(history, 8).tokens[:1] == expected


def most_frequent(text: list[int], history: list[int]) -> tuple[int, ...]:
    for size, least, percent in ((4, 1, 50), (3, 1, 50), (2, 2, 50), (1, 2, 66)):
        if len(history) < size:
            continue
        followers = [text[end] for end in reversed(matches(text, history[-size:], ahead=1))]
        counts: Counter[int] = Counter()
        best = -1
        for token in followers:
            counts[token] += 1
            if counts[token] >= counts[best]:
                best = token
        if len(followers) >= least and 100 * counts[best] >= percent * len(followers) > 0:
            return (best,)
    return ()


@given(edits, st.integers(0, 2))
@example([[0, 0, 1, 0, 0], [0], [0], [0], [0], [0]], 1)
def test_mod_follows_all_text_it_ever_saw(script: list[list[int] | float], last: int) -> None:
    drafter = NgramMod(n_match=3, n_min=2, longest=5)
    followers: dict[tuple[int, ...], int] = {}
    before: list[int] = []
    for text in edited(drafter, script):
        for at in range(max(3, len(before)), len(text)):
            followers[tuple(text[at - 3 : at])] = text[at]
        before = text
        chain = [*text, last][-3:]
        while len(chain) < 8 and tuple(chain[-3:]) in followers:
            chain.append(followers[tuple(chain[-3:])])
        expected = tuple(chain[3:]) if len(chain) >= 5 and len(text) >= 2 else ()
        assert drafter.draft([*text, last], 9).tokens == expected
        drafter.truncate(len(text))  # a guess that is forgotten is not judged: no table is emptied


# --- what they learn from what came true ----------------------------------------------------------


def test_a_guess_is_judged_by_the_text_alone() -> None:
    guess = Guess(2, (5, 6, 7))
    assert guess.came_true([0, 0]) is None
    assert guess.came_true([0, 0, 5, 6]) is None
    assert guess.came_true([0, 0, 5, 9]) == 1
    assert guess.came_true([0, 0, 9]) == 0
    assert guess.came_true([0, 0, 5, 6, 7]) == 3


def test_map_k_proposes_what_was_right_the_last_time() -> None:
    drafter = NgramMapK(1, 4, 4)
    history = [*FIRST, 0, 0, 7]
    say(drafter, history[:-1])
    assert drafter.draft(history, 9).tokens == (1, 2, 3, 4)

    history += [1, 2, 0, 7]  # two of them were right
    say(drafter, history[8:-1], 8)
    assert drafter.draft(history, 9).tokens == (1, 2)

    history += [1, 2, 3, 7]  # both were: there is no limit any more
    say(drafter, history[12:-1], 12)
    assert drafter.draft(history, 9).tokens == (1, 2, 3)

    history += [5, 0, 7]  # none was: one token, to begin with
    say(drafter, history[16:-1], 16)
    assert len(drafter.draft(history, 9).tokens) == 1


def test_map_k_begins_a_new_conversation_without_prejudice() -> None:
    drafter = NgramMapK(1, 4, 4)
    history = [*FIRST, 0, 0, 7]
    say(drafter, history[:-1])
    drafter.draft(history, 9)
    assert drafter.draft([*history, 5], 9) is not None  # judged: all wrong
    drafter.truncate(0)
    say(drafter, history[:-1])
    assert drafter.draft(history, 9).tokens == (1, 2, 3, 4)


def test_mod_is_silent_below_its_least_length() -> None:
    drafter = NgramMod(n_match=2, n_min=4, longest=6)
    say(drafter, [1, 2, 3, 4, 5, 6, 1])
    assert drafter.draft([1, 2, 3, 4, 5, 6, 1, 2], 2).tokens == (3, 4)  # of a chain of at least 4
    assert drafter.draft([1, 2, 3, 4, 5, 6, 3, 4], 6).tokens == ()


def test_mod_forgets_all_after_five_poor_rounds_in_a_row() -> None:
    drafter = NgramMod(n_match=1, n_min=1, longest=4)
    history = [1, 2, 3, 4, 5, 1]
    say(drafter, history[:-1])
    for good in (True, *[False] * 5):
        assert drafter.draft(history, 4).tokens == (2, 3, 4, 5)
        drafter.draft([*history, *((2, 3, 4, 5) if good else (9,))], 4)
    assert drafter.draft(history, 4).tokens == ()


def test_mod_empties_a_full_table_between_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ngram_mod, "SLOTS", 1 << 10)
    drafter = NgramMod(n_match=1, n_min=1, longest=4)
    say(drafter, list(range(250)))
    drafter.truncate(250)
    assert drafter.draft([5], 1).tokens == (6,)
    say(drafter, list(range(250, 300)), 250)
    drafter.truncate(300)
    assert drafter.draft([5], 1).tokens == ()


def test_cache_prefers_a_long_ngram_over_a_frequent_one() -> None:
    drafter = ngram_cache.build(SpecOptions())
    say(drafter, [*SECOND, *FIRST, 8, 1, 2, 3, 8, 1, 2, 3, 9, 9, 7, 1, 2])
    assert drafter.draft([8, 1, 2], 1).tokens == (3,)
