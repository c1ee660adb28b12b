"""Command lines as people write them, and what the parser gets."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turbodflash_cli import foreign
from turbodflash_cli.argv import ROOT, scan
from turbodflash_cli.program import GRAMMARS
from turbodflash_engine import BadUsage

OWN = GRAMMARS[ROOT]
assert OWN is not None
SPELLINGS = sorted(OWN.flags)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], []),
        (["-p", "hi"], ["--prompt=hi"]),
        (["-p", "-1"], ["--prompt=-1"]),
        (["-n", "-1", "--temp", "-1"], ["--predict=-1", "--temp=-1"]),
        (["-m", "a=b.gguf"], ["--model=a=b.gguf"]),
        (["--seed=7"], ["--seed=7"]),
        (["--cache_type_k", "f16"], ["--cache-type-k=f16"]),
        (["--cache_type_k=f_16"], ["--cache-type-k=f_16"]),
        (["-no-cnv"], ["--no-conversation"]),
        (["-i"], ["--conversation"]),
        (["--no-warmup", "--warmup"], ["--no-warmup", "--warmup"]),
        (["-fa"], ["--flash-attn=on"]),
        (["-fa", "-p", "hi"], ["--flash-attn=on", "--prompt=hi"]),
        (["-fa", "off", "-p", "hi"], ["--flash-attn=off", "--prompt=hi"]),
        (["-fa", "1"], ["--flash-attn=1"]),
        (["-fa", "-1"], ["--flash-attn=-1"]),
        (["--flash-attn=auto"], ["--flash-attn=auto"]),
        (["-p", "-"], ["--prompt=-"]),
        (["-p", ""], ["--prompt="]),
        (["-h"], ["--help"]),
        (["-p", "-h"], ["--prompt=-h"]),
        (["-p", "hi", "--usage", "--bogus"], ["--help"]),
        (["--help-all"], ["--help-all"]),
        (["--version"], ["--version"]),
        (["--completion-bash"], ["--show-completion"]),
        (["bench", "-m", "x"], ["bench", "--model=x"]),
        (["-m", "x", "bench", "-t", "2"], ["bench", "--model=x", "--threads=2"]),
        (["-m", "bench", "-p", "x"], ["--model=bench", "--prompt=x"]),
        (["bench", "-h"], ["bench", "--help"]),
        (["bench", "--help-all"], ["bench", "--help"]),
        (["inspect", "x.gguf", "--json"], ["inspect", "x.gguf", "--json"]),
        (["inspect", "--json", "x.gguf"], ["inspect", "--json", "x.gguf"]),
        (["models", "rm", "--yes", "x"], ["models", "rm", "--yes", "x"]),
    ],
)
def test_what_the_parser_gets(argv: list[str], words: list[str]) -> None:
    scanned = scan(argv, GRAMMARS)
    assert (scanned.words, scanned.notes) == (words, [])


@pytest.mark.parametrize(
    ("argv", "words", "note"),
    [
        (["--numa", "isolate", "-p", "x"], ["--prompt=x"], "note: '--numa' has no effect here."),
        (["--no-mmap"], [], "note: '--no-mmap' has no effect here."),
        (["--mlock"], [], "note: '--mlock' has no effect here."),
        (["--load_mode=mmap"], [], "note: '--load-mode' has no effect here."),
        (
            ["--draft-max", "16"],
            ["--spec-draft-n-max=16"],
            "note: '--draft-max' is now '--spec-draft-n-max'.",
        ),
        (["-p", "--temp"], ["--prompt=--temp"], "warning: option '-p' took '--temp' as its value."),
    ],
)
def test_what_is_taken_with_a_note(argv: list[str], words: list[str], note: str) -> None:
    scanned = scan(argv, GRAMMARS)
    assert (scanned.words, scanned.notes) == (words, [note])


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--modle", "x"], "unknown option '--modle'. Did you mean '--model'?"),
        (["--te", "1"], "unknown option '--te'."),
        (["-mx"], "unknown option '-mx'. Did you mean '-m'?"),
        (["-ngll", "99"], "unknown option '-ngll'. Did you mean '-ngl'?"),
        (["-n5"], "unknown option '-n5'. Did you mean '-n'?"),
        (["-p=hi"], "a value is a word of its own: -p hi"),
        (["--"], "unknown option '--'."),
        (["-p"], "option '-p' needs a value."),
        (["--numa"], "option '--numa' needs a value."),
        (["--dflash=1"], "option '--dflash' takes no value, not even '1'."),
        (
            ["--lookup-cache-static", "x"],
            "'--lookup-cache-static' is not supported by turbodflash.",
        ),
        (["--mmproj", "x"], "'--mmproj' is not supported by turbodflash."),
        (["--grammar", "root ::= x"], "'--grammar' is not supported by turbodflash."),
        (["--json=1"], "option '--json' takes no value, not even '1'."),
        (["benhc"], "unexpected word 'benhc'. Did you mean 'bench'?"),
        (["-m", "x", "hello"], "unexpected word 'hello'."),
        (["inspect", "a", "b"], "unexpected word 'b'."),
        (["bench", "--temp", "1"], "unknown option '--temp'."),
    ],
)
def test_what_is_refused(argv: list[str], sentence: str) -> None:
    with pytest.raises(BadUsage) as refusal:
        scan(argv, GRAMMARS)
    assert str(refusal.value).startswith(sentence)


def test_no_foreign_option_is_ours_and_none_stands_in_two_tables() -> None:
    tables = [foreign.IGNORED, foreign.UNSUPPORTED]
    names = [name for table in tables for name in table]
    assert len(names) == len(set(names))
    assert not set(names) & set(SPELLINGS)
    assert set(foreign.INSTEAD) <= set(foreign.UNSUPPORTED)


@pytest.mark.parametrize("name", SPELLINGS)
def test_every_spelling_is_understood(name: str) -> None:
    assert OWN is not None
    known = OWN.flags[name]
    [word] = scan([name, "1"] if known.takes_value else [name], GRAMMARS).words
    assert word.split("=")[0] == (known.canonical_off if name in known.off else known.canonical)


WORDS = st.one_of(
    st.sampled_from([*SPELLINGS, *foreign.IGNORED, *foreign.UNSUPPORTED]),
    st.sampled_from(["bench", "inspect", "models", "-h", "--", "-", "=", "--=", "-fa", "on", "\0"]),
    st.text(max_size=8),
    st.text(max_size=6).map("-".__add__),
    st.text(max_size=6).map("--".__add__),
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(WORDS, max_size=8))
def test_any_command_line_is_regular_or_refused(argv: list[str]) -> None:
    try:
        scanned = scan(argv, GRAMMARS)
    except BadUsage as refusal:
        assert str(refusal)  # noqa: PT017 - refusing is one of two good ends
        return
    if scanned.words[:1] not in (["models"], ["inspect"], ["bench"]):
        assert all(word.startswith("--") for word in scanned.words)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.sampled_from(SPELLINGS), st.text(max_size=8)), max_size=5))
def test_a_value_is_never_read_as_anything_else(pairs: list[tuple[str, str]]) -> None:
    assert OWN is not None
    argv, expected = [], []
    for name, value in pairs:
        if OWN.flags[name].takes_value and not OWN.flags[name].bare:
            argv += [name, value]
            expected.append(f"{OWN.flags[name].canonical}={value}")
    assert scan(argv, GRAMMARS).words == expected
