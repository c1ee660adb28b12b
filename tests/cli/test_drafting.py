"""The options about drafting: what they become, what they refuse together, what is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.fake import Program
from turbodflash_cli.drafting import conditional, rate_of_length
from turbodflash_engine import SPEC_TYPES, SpecOptions


@pytest.fixture
def draft(tmp_path: Path) -> str:
    """A draft's file, as far as the command line cares."""
    file = tmp_path / "d.gguf"
    file.write_bytes(b"GGUF")
    return str(file)


def spec(program: Program, *argv: str) -> SpecOptions | None:
    result = program("-p", "hi", *argv)
    assert result.code == 0, result.err
    found: SpecOptions | None = program.opened[-1].spec
    return found


class TestWhatIsAsked:
    def test_nothing_is_plain_decoding(self, program: Program) -> None:
        assert spec(program) is None

    def test_a_file_alone_is_enough(self, program: Program, draft: str) -> None:
        assert spec(program, "-md", draft) == SpecOptions(model=Path(draft))

    @pytest.mark.parametrize(
        ("argv", "types"),
        [
            (["--dflash"], ("draft-dflash",)),
            (["--eagle3"], ("draft-eagle3",)),
            (["--spec-type", "draft-mtp"], ("draft-mtp",)),
            (["--dflash", "--spec-type", "draft-dflash"], ("draft-dflash",)),
            (["--spec-type", "ngram-mod,draft-dspark"], ("ngram-mod", "draft-dspark")),
            (
                ["--spec-type", "ngram-cache", "--spec-type", "ngram-mod"],
                ("ngram-cache", "ngram-mod"),
            ),
            (["--spec-default", "--dflash"], ("draft-dflash", "ngram-mod")),
        ],
    )
    def test_types(
        self, program: Program, draft: str, argv: list[str], types: tuple[str, ...]
    ) -> None:
        found = spec(program, "-md", draft, *argv)
        assert found is not None
        assert found.types == types

    @pytest.mark.parametrize("kind", [kind for kind in SPEC_TYPES if kind.startswith("ngram-")])
    def test_no_file_is_needed_for_n_grams(self, program: Program, kind: str) -> None:
        assert spec(program, "--spec-type", kind) == SpecOptions(types=(kind,))

    def test_a_block_of_the_models_own_needs_none(self, program: Program) -> None:
        found = spec(program, "--spec-type", "draft-mtp", "-cd", "4k", "--spec-draft-n-max", "2")
        assert found == SpecOptions(types=("draft-mtp",), context=4096, n_max=2)

    def test_every_setting_arrives(self, program: Program, draft: str) -> None:
        found = spec(
            program,
            *("-md", draft, "--draft-max", "15", "--spec-draft-n-min", "2", "--draft-p-min", "0.3"),
            *("-cd", "4k", "-td", "2", "-tbd", "-1", "-ctkd", "f32"),
            *("-ctvd", "f32", "--spec-width", "8", "--spec-tree", "16", "--dflash-inject", "1"),
            *("-ngld", "0"),
        )
        assert found == SpecOptions(
            model=Path(draft),
            n_max=15,
            n_min=2,
            p_min=0.3,
            context=4096,
            threads=2,
            threads_batch=0,
            cache_type_k="f32",
            cache_type_v="f32",
            gpu_layers=0,
            width=8,
            tree=16,
            inject="deferred",
        )

    def test_n_grams_have_sizes_of_their_own(self, program: Program) -> None:
        found = spec(
            program,
            *("--spec-type", "ngram-mod,ngram-map-k4v", "--spec-ngram-mod-n-min", "100"),
            *("--spec-ngram-mod-n-max", "200", "--spec-ngram-map-k4v-min-hits", "3"),
        )
        assert found is not None
        assert (found.ngram_mod.n_match, found.ngram_mod.n_min, found.ngram_mod.n_max) == (
            *(24, 100, 200),
        )
        assert (found.ngram_map_k4v.min_hits, found.ngram_map_k.min_hits) == (3, 1)

    def test_none_leaves_the_draft_alone_and_says_so(self, program: Program, draft: str) -> None:
        result = program("-p", "hi", "-md", draft, "--spec-type", "none")
        assert program.opened[0].spec is None
        assert result.err.startswith("note: --spec-type none: the draft is not loaded.\n")

    @pytest.mark.parametrize("argv", [[], ["-md", "dflash-x.gguf"]])
    def test_a_repository_of_drafts(
        self, program: Program, monkeypatch: pytest.MonkeyPatch, argv: list[str]
    ) -> None:
        asked: list[Any] = []

        def resolve(*given: Any, **more: Any) -> Path:
            asked.extend([given[:3], more["draft"]])
            return Path("/cache/d.gguf")

        monkeypatch.setattr("turbodflash_cli.fetch.resolve", resolve)
        found = spec(program, "-hfd", "user/m", *argv)
        assert found == SpecOptions(model=Path("/cache/d.gguf"))
        assert asked == [(None, "user/m", argv[1] if argv else None), True]

    def test_settings_of_the_environment_alone_ask_for_nothing(
        self, program: Program, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("LLAMA_ARG_SPEC_DRAFT_N_MAX", "8")
        monkeypatch.setenv("LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K", "f16")
        assert spec(program) is None


REFUSED = [
    (["--dflash"], "--dflash needs a draft model.", "-md draft.gguf"),
    (["-cd", "64"], "-cd needs a draft model.", "-md draft.gguf"),
    (["--ctx-size-draft", "64"], "--ctx-size-draft needs a draft model.", ""),
    (["--spec-type", "draft-simple"], "--spec-type draft-simple needs a draft model.", ""),
    (["--spec-type", "ngram-mod", "-td", "2"], "-td needs a draft model.", ""),
    (
        ["--spec-draft-n-max", "8"],
        "--spec-draft-n-max has nothing to act on: nobody drafts.",
        "-md draft.gguf, or --spec-type ngram-simple",
    ),
    (["-md", "no.gguf"], "draft model file not found: no.gguf", ""),
    (["-md", "."], "'.' is a folder, not a draft model.", ""),
    (["-md", "x", "--dflash", "--eagle3"], "--dflash and --eagle3 exclude each other.", ""),
    (
        ["-md", "x", "--dflash", "--spec-type", "draft-simple"],
        "a draft is of one kind, not draft-simple and draft-dflash.",
        "",
    ),
    (
        ["--spec-type", "none,ngram-mod"],
        "--spec-type none excludes ngram-mod.",
        "leave one of them out",
    ),
    (
        ["--spec-type", "ngram-mod", "--spec-ngram-simple-size-n", "3"],
        "--spec-ngram-simple-size-n needs --spec-type ngram-simple.",
        "",
    ),
    (
        ["-md", "x", "--spec-draft-n-max", "3", "--spec-draft-n-min", "4"],
        "n_min is 4, more than n_max, 3; every draft would be thrown away",
        "",
    ),
    (
        ["-md", "x", "--spec-synth-len", "2", "--spec-synth-rates", "1"],
        "--spec-synth-len and --spec-synth-rates exclude each other.",
        "",
    ),
    (
        ["-md", "x", "--spec-synth-len", "9", "--spec-draft-n-max", "7"],
        "--spec-synth-len 9 is more than a step can bring: 7 drafted tokens and one more.",
        "raise --spec-draft-n-max",
    ),
    (
        ["-md", "x", "--spec-synth-rates", "0.5,0.5", "--spec-width", "1"],
        "--spec-synth-rates has 2 rates for 1 drafted tokens.",
        "",
    ),
]


@pytest.mark.parametrize(
    ("argv", "sentence", "hint"), REFUSED, ids=[" ".join(a) for a, *_ in REFUSED]
)
def test_what_is_refused_together(
    program: Program, argv: list[str], sentence: str, hint: str
) -> None:
    result = program("-p", "hi", *argv)
    assert (result.code, result.out) == (2, "")
    assert result.err.removeprefix("warning: ").startswith(f"error: {sentence}")
    assert hint in result.err
    assert program.opened == []


class TestSyntheticAcceptance:
    @given(st.integers(1, 20).flatmap(lambda n: st.tuples(st.just(n), st.floats(1, n + 1))))
    def test_a_length_is_that_of_its_rate(self, drawn: tuple[int, float]) -> None:
        most, length = drawn
        rate = rate_of_length(length, most)
        assert 0 <= rate <= 1
        assert sum(rate**i for i in range(most + 1)) == pytest.approx(length, abs=1e-6)

    @given(st.lists(st.floats(0, 1), min_size=1, max_size=8).map(lambda r: sorted(r)[::-1]))
    def test_chances_multiply_to_the_shares(self, shares: list[float]) -> None:
        product, found = 1.0, []
        for chance in conditional(tuple(shares)):
            assert 0 <= chance <= 1
            product *= chance
            found.append(product)
        assert found == pytest.approx(shares)

    @pytest.mark.parametrize(
        ("argv", "count"),
        [
            (["--spec-draft-n-max", "7"], 7),
            (["--spec-draft-n-max", "7", "--spec-width", "auto"], 7),
            (["--spec-draft-n-max", "15", "--spec-width", "7"], 7),
        ],
    )
    def test_a_length_is_what_the_step_can_bring(
        self, program: Program, draft: str, argv: list[str], count: int
    ) -> None:
        found: Any = spec(program, "-md", draft, "--spec-synth-len", "4", *argv)
        assert len(found.synth_rates) == count
        [rate] = set(found.synth_rates)
        assert sum(rate**i for i in range(count + 1)) == pytest.approx(4)

    def test_without_a_limit_it_is_that_of_endless_steps(
        self, program: Program, draft: str
    ) -> None:
        found: Any = spec(program, "-md", draft, "--spec-synth-len", "4")
        assert found.synth_rates[0] == pytest.approx(0.75, abs=1e-6)

    def test_rates_are_shares_of_all_steps(self, program: Program, draft: str) -> None:
        found: Any = spec(program, "-md", draft, "--spec-synth-rates", "0.8,0.4,0")
        assert found.synth_rates == pytest.approx((0.8, 0.5, 0.0))
