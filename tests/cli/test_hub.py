"""`-hf`: which file is chosen, how it comes, and what is said when it cannot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.hub_server import HubServer, serve_hub
from turbodflash_cli.fetch import resolve
from turbodflash_cli.hub import Hub, choose, drafts_among, models_among, parse_spec, parts_of
from turbodflash_cli.store import SourceFailed
from turbodflash_engine import BadUsage

REPO = "user/tiny-GGUF"
FILES = {
    "README.md": b"words",
    "mmproj-tiny-f16.gguf": b"eyes",
    "tiny-Q4_K_M.gguf": b"four bits" * 9999,
    "tiny-Q8_0.gguf": b"eight bits" * 9999,
}
PARTS = {f"big/big-F16-{n:05}-of-00003.gguf": b"%d" % n for n in (1, 2, 3)}


def quiet(stage: str, done: int, total: int) -> None:
    pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    for name in ("HF_TOKEN", "HF_ENDPOINT", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    with serve_hub(**{REPO: FILES, "user/big": PARTS}) as hub:
        yield hub


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("user/repo", ("user/repo", None)),
        ("user/repo:Q8_0", ("user/repo", "Q8_0")),
        (" user/re.po-2_x:ud-q4_k_xl ", ("user/re.po-2_x", "ud-q4_k_xl")),
    ],
)
def test_a_spec_is_a_repository_and_perhaps_a_quantisation(spec, expected):
    assert parse_spec(spec) == expected


@pytest.mark.parametrize(
    "spec", ["", "repo", "user/", "a/b/c", "user/repo:", "user/re po", "u/r:a:b"]
)
def test_other_specs_are_refused_with_an_example(spec):
    with pytest.raises(BadUsage, match="user/repo:quant") as refusal:
        parse_spec(spec)
    assert "-hf" in refusal.value.hint


BESIDE = ("dflash-m-Q8_0.gguf", "eagle3-m.gguf", "m-Q4_K_M.gguf", "mtp-m.gguf", "sub/DFlash-b.gguf")


def test_drafts_beside_a_model_are_told_from_it():
    assert drafts_among(BESIDE) == ["dflash-m-Q8_0.gguf", "sub/DFlash-b.gguf"]
    assert drafts_among(BESIDE[1:4]) == ["eagle3-m.gguf"]
    assert drafts_among(("dspark-m.gguf", *BESIDE)) == ["dspark-m.gguf"]
    assert models_among(BESIDE) == ["m-Q4_K_M.gguf"]


def test_a_repository_of_one_sort_is_taken_as_it_is():
    assert drafts_among(("m.gguf",)) == ("m.gguf",)
    assert models_among(("mtp-m.gguf",)) == ("mtp-m.gguf",)


SHELF = (
    "m-BF16-00001-of-00002.gguf",
    "m-BF16-00002-of-00002.gguf",
    "m-IQ4_XS.gguf",
    "m-Q4_K_M.gguf",
    "m-Q4_K_S.gguf",
    "m-UD-Q4_K_M.gguf",
    "m-f16.gguf",
)


@pytest.mark.parametrize(
    ("quant", "expected"),
    [
        (None, "m-Q4_K_M.gguf"),
        ("q4_k_m", "m-Q4_K_M.gguf"),
        ("ud-q4_k_m", "m-UD-Q4_K_M.gguf"),
        ("iq4_xs", "m-IQ4_XS.gguf"),
        ("bf16", "m-BF16-00001-of-00002.gguf"),
        ("F16", "m-f16.gguf"),  # not BF16
    ],
)
def test_the_quantisation_chooses_the_file(quant, expected):
    assert choose(SHELF, quant, REPO) == expected


def test_without_the_usual_quantisation_the_first_file_is_taken():
    assert choose(["a-Q5_0.gguf", "b-Q8_0.gguf"], None, REPO) == "a-Q5_0.gguf"


@pytest.mark.parametrize("quant", ["Q4_K", "Q4", "4_K_M", "Q6_K"])
def test_an_absent_quantisation_is_refused_with_those_that_exist(quant):
    with pytest.raises(BadUsage, match=repr(quant)) as refusal:
        choose(SHELF, quant, REPO)
    assert refusal.value.hint == "there are: BF16, IQ4_XS, Q4_K_M, Q4_K_S, f16"


def test_a_repository_without_models_is_refused():
    with pytest.raises(BadUsage, match="holds no GGUF file"):
        choose([], None, REPO)


def test_a_missing_part_is_named():
    with pytest.raises(SourceFailed, match=r"lacks m-BF16-00002-of-00002\.gguf"):
        parts_of(SHELF[0], [SHELF[0]], REPO)


def test_a_file_is_fetched_once_and_then_found_offline(server, tmp_path):
    first = Hub(endpoint=server.endpoint, cache=tmp_path).model(f"{REPO}:q8_0", None, quiet)
    assert first.read_bytes() == FILES["tiny-Q8_0.gguf"]
    again = Hub(endpoint=server.endpoint, cache=tmp_path).model(f"{REPO}:q8_0", None, quiet)
    offline = Hub(endpoint=server.endpoint, cache=tmp_path, offline=True)
    assert again == offline.model(f"{REPO}:Q8_0", None, quiet) == first
    assert server.downloads == ["tiny-Q8_0.gguf"]


def test_a_kept_file_is_found_when_the_server_is_away(server, tmp_path):
    kept = Hub(endpoint=server.endpoint, cache=tmp_path).model(REPO, None, quiet)
    server.refusals[REPO] = (500, "")
    assert Hub(endpoint=server.endpoint, cache=tmp_path).files(REPO) == [kept.name]


def test_an_exact_file_beats_the_quantisation(server, tmp_path):
    hub = Hub(endpoint=server.endpoint, cache=tmp_path)
    assert hub.model(f"{REPO}:q4_k_m", "tiny-Q8_0.gguf", quiet).name == "tiny-Q8_0.gguf"
    with pytest.raises(BadUsage, match=r"no file 'tiny-Q2_K.gguf'") as refusal:
        hub.model(REPO, "tiny-Q2_K.gguf", quiet)
    assert "tiny-Q4_K_M.gguf" in refusal.value.hint


def test_all_parts_of_a_split_model_come_and_lie_together(server, tmp_path):
    first = Hub(endpoint=server.endpoint, cache=tmp_path).model("user/big:f16", None, quiet)
    assert first.name == "big-F16-00001-of-00003.gguf"
    together = sorted(first.parent.iterdir())
    assert [path.read_bytes() for path in together] == list(PARTS.values())


def test_progress_counts_up_to_the_size(server, tmp_path):
    seen = []
    Hub(endpoint=server.endpoint, cache=tmp_path).model(REPO, None, lambda *step: seen.append(step))
    size = len(FILES["tiny-Q4_K_M.gguf"])
    counts = [done for stage, done, total in seen if stage == "downloading" and total == size]
    assert counts == sorted(counts)
    assert counts[-1] == size


@pytest.mark.parametrize(("given", "saved"), [("mine", None), (None, "mine"), ("mine", "other")])
def test_the_token_goes_with_every_request(server, tmp_path, monkeypatch, given, saved):
    if saved:
        monkeypatch.setenv("HF_TOKEN", saved)
    Hub(endpoint=server.endpoint, cache=tmp_path, token=given).model(REPO, None, quiet)
    assert server.tokens == {"Bearer mine"}


@pytest.mark.parametrize(
    ("status", "code", "kind", "sentence", "hint"),
    [
        (404, "RepoNotFound", BadUsage, "no repository user/tiny-GGUF", "HF_TOKEN"),
        (401, "RepoNotFound", BadUsage, "no repository user/tiny-GGUF", "HF_TOKEN"),
        (401, "", SourceFailed, "could not fetch from user/tiny-GGUF: .*401", "token"),
        (403, "GatedRepo", BadUsage, "licence of user/tiny-GGUF must be accepted", "HF_TOKEN"),
        (500, "", SourceFailed, "could not fetch from user/tiny-GGUF: .*500", "network"),
    ],
)
def test_what_the_server_refuses_becomes_a_sentence(
    server, tmp_path, status, code, kind, sentence, hint
):
    server.refusals[REPO] = (status, code)
    with pytest.raises(kind, match=sentence) as refusal:
        Hub(endpoint=server.endpoint, cache=tmp_path).model(REPO, None, quiet)
    assert hint in refusal.value.hint
    assert "\n" not in str(refusal.value)


def test_nobody_listens(tmp_path):
    with serve_hub() as gone:
        endpoint = gone.endpoint
    with pytest.raises(SourceFailed, match=f"could not fetch from {REPO}"):
        Hub(endpoint=endpoint, cache=tmp_path).model(REPO, None, quiet)


def test_offline_with_an_empty_cache_says_what_to_do(tmp_path):
    with pytest.raises(SourceFailed, match="--offline forbids") as refusal:
        Hub(cache=tmp_path / "none", offline=True).model(REPO, None, quiet)
    assert "without --offline" in refusal.value.hint


def test_the_environment_names_the_server(server, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    path = resolve(None, REPO, None, offline=False)
    assert path.is_relative_to(tmp_path)
    assert Path(path).read_bytes() == FILES["tiny-Q4_K_M.gguf"]
