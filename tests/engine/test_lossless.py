"""Drafting changes no bit: with every drafter a target says what it says without.

A drafter is found by itself when it is on the shelf: with a tiny file of its own where the golden
data has one for the target, and otherwise with random weights of its layout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from math import prod
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.engine.spec_runs import draft_for
from tests.engine.tiny_models import Made, made, tensors_of, tiny
from tests.engine.toy import ScriptedDrafter
from tests.golden_files import GOLDEN
from turbodflash_engine import plugins
from turbodflash_engine.decode import Drafting, Ending, Step, decode, prefill
from turbodflash_engine.drafters._base import Draft, Drafter, FileKind, NoDrafter, RuleKind
from turbodflash_engine.drafters._first import FirstOf
from turbodflash_engine.layers.tensors import ANY
from turbodflash_engine.metadata import Metadata
from turbodflash_engine.models._base import CachePlan, Model
from turbodflash_engine.options import (
    CACHE_TYPES,
    NgramModOptions,
    NgramOptions,
    SampleOptions,
    SpecOptions,
)
from turbodflash_engine.sampling import Sampler
from turbodflash_kernels.device import Device, open_device

TARGETS = plugins.names("models")
FORMATS = ("f16", "f32")
THOROUGH = ("qwen3", "qwen35moe")
"""Targets that are tried with both formats, and with scripted drafts of all widths; what others run
is run by these, too."""
TOKENS = 14
WIDTHS, SOME_WIDTHS = range(1, 17), (1, 2, 3, 5, 8, 16)
PROMPT = [7, 300, 301, 302, 40, 41, 300, 301, 302, 40]
SAMPLING = {"greedy": SampleOptions(temp=0), "sampled": SampleOptions(temp=0.8, seed=1)}

FILES = sorted(path.name.removesuffix(".gguf.xz") for path in GOLDEN.glob("models/tiny-*--qwen3.*"))
RULES = [
    name
    for name in plugins.names("drafters")
    if isinstance(plugins.find("drafters", name), RuleKind)
]
EAGER = SpecOptions(
    ngram_simple=NgramOptions(1, 8),
    ngram_map_k=NgramOptions(1, 8),
    ngram_map_k4v=NgramOptions(1, 8),
    ngram_mod=NgramModOptions(1, 1, 8),
)
"""One repeated token is enough for a guess."""


class Vocabulary:
    vocab_size = 512
    eog: frozenset[int] = frozenset()
    suppress: frozenset[int] = frozenset()

    def piece(self, token: int, /, special: bool = False) -> bytes:
        return b"."


class Silent:
    """A detokenizer of texts that nobody reads."""

    def push(self, token: int, /) -> str:
        return ""

    def flush(self) -> str:
        return ""


@dataclass
class Told:
    tokens: list[int]
    last: NDArray[np.float32]
    steps: list[Step]


@dataclass
class Bench:
    """A target that is used again and again."""

    device: Device
    model: Model
    prompt: Sequence[int] = tuple(PROMPT)
    chunk: int = 4

    def told(self, drafter: Drafter, options: SpecOptions, sample: SampleOptions) -> Told:
        """The answer, and the logits after it."""
        self.model.cache.truncate(0)
        drafter.truncate(0)
        history = list(self.prompt)
        sampler = Sampler(sample, Vocabulary(), 1)
        seen = returned(prefill(self.model, drafter, self.prompt, self.chunk, sampler.look))
        ending = Ending(Silent(), eog=(), left=TOKENS, limit="length")
        drafting = Drafting(drafter, options)
        steps = list(decode(self.model, drafting, sampler, ending, history, seen))
        last = self.model(history[-1:]).logits.copy()
        return Told(history[len(self.prompt) :], last, steps)

    def check(self, drafter: Drafter, plain: dict[str, Told], **options: Any) -> None:
        """With this drafter both kinds of answers are, to the bit, those of plain decoding."""
        for name, sample in SAMPLING.items():
            told = self.told(drafter, SpecOptions(**options), sample)
            assert told.tokens == plain[name].tokens, (name, options)
            np.testing.assert_array_equal(told.last, plain[name].last, str((name, options)))


def returned(reading: Iterator[Any]) -> Any:
    while True:
        try:
            next(reading)
        except StopIteration as done:
            return done.value


@cache
def bench(target: str, format: str) -> Bench:
    """Two threads are tried with one format: where they share a core, they wait for each other."""
    device = open_device("cpu", 2 if format == "f16" and target in THOROUGH else 1)
    return Bench(device, tiny(target, device, format))


@cache
def plain(target: str, format: str) -> dict[str, Told]:
    return {
        name: bench(target, format).told(NoDrafter(), SpecOptions(), sample)
        for name, sample in SAMPLING.items()
    }


def random_file(draft: str, model: Model) -> tuple[Metadata, dict[str, Made]]:
    """A draft of the same kind as a tiny one, for another model, its weights random."""
    metadata, infos = tensors_of(draft)
    architecture, width = metadata.architecture, model.shared.width
    changes = {
        "embedding_length": width,
        "target_hidden_size": width,
        "target_layers": np.asarray([1, 2, 3], np.int32),
        "has_confidence_head": False,
    }
    values = {f"{architecture}.{name}": value for name, value in changes.items()}
    other = Metadata(dict(metadata.items()) | values, f"{draft} of random weights")
    kept = {name: info for name, info in infos.items() if not name.startswith("conf_proj")}
    kind = next(each for each in file_kinds() if each.claims(metadata, kept))
    layout = kind.layout(kind.read(other), kept)
    shapes = {
        name: shape for name, shape in (layout.required | layout.optional).items() if name in kept
    }
    rng = np.random.default_rng(3)
    tensors = {}
    for name, shape in shapes.items():
        old = infos[name].shape
        rows = [old[axis] if size == ANY else size for axis, size in enumerate(shape)]
        weights = rng.standard_normal(prod(rows)).reshape(rows[::-1]) / np.sqrt(rows[0])
        tensors[name] = made(name, (1 + weights / 8 if len(rows) == 1 else weights).astype("f4"))
    return other, tensors | {name: infos[name] for name in layout.ids if name in kept}


def file_kinds() -> list[FileKind]:
    found = [plugins.find("drafters", name) for name in plugins.names("drafters")]
    return [kind for kind in found if isinstance(kind, FileKind)]


def drafter_from_file(name: str, target: str, format: str, **options: Any) -> Drafter:
    place = bench(target, format)
    own = name.replace("--qwen3", f"--{target}")
    if (GOLDEN / "models" / f"{own}.gguf.xz").exists():
        name = own
    file: Any = tensors_of(name.removeprefix("tiny-"))
    if not name.endswith(f"--{target}"):
        file = random_file(name.removeprefix("tiny-"), place.model)
    plan = CachePlan(256, format, format)
    return draft_for(place.model, place.device, file, SpecOptions(**options), plan)


everywhere = pytest.mark.parametrize(
    ("target", "format"),
    [
        (target, format)
        for target in TARGETS
        for format in (FORMATS if target in THOROUGH else FORMATS[:1])
    ],
)


@everywhere
@pytest.mark.parametrize("name", FILES)
def test_a_draft_from_a_file_changes_no_bit(name: str, target: str, format: str) -> None:
    drafter = drafter_from_file(name, target, format)
    for width in sorted({min(width, drafter.longest) for width in SOME_WIDTHS}):
        bench(target, format).check(drafter, plain(target, format), width=width)
    bench(target, format).check(drafter, plain(target, format))


@everywhere
@pytest.mark.parametrize("name", FILES)
def test_a_tree_changes_no_bit(name: str, target: str, format: str) -> None:
    drafter = drafter_from_file(name, target, format, tree=16)
    for nodes in (1, 5, 16):
        bench(target, format).check(drafter, plain(target, format), tree=nodes)


@pytest.mark.parametrize("name", ["tiny-dflash--qwen3", "tiny-eagle3--qwen3"])
@pytest.mark.parametrize("format", sorted(set(CACHE_TYPES) - set(FORMATS)))
def test_no_cache_type_lets_a_draft_change_a_bit(format: str, name: str) -> None:
    """Of the model's cache and the draft's: chains of some widths, and trees."""
    drafter = drafter_from_file(name, "qwen3", format)
    for width in (1, 4, 7):
        bench("qwen3", format).check(drafter, plain("qwen3", format), width=width)
    bench("qwen3", format).check(
        drafter_from_file(name, "qwen3", format, tree=16), plain("qwen3", format), tree=16
    )


@everywhere
def test_a_smaller_model_changes_no_bit(target: str, format: str) -> None:
    place = bench(target, format)
    other = "llama" if target == "qwen3" else "qwen3"
    for name in (target, other):  # the first knows what will be said
        drafter = draft_for(place.model, place.device, tensors_of(name))
        for width in (1, 2, 5, 16):
            place.check(drafter, plain(target, format), width=width)


@everywhere
@pytest.mark.parametrize("name", RULES)
def test_a_guess_from_the_text_changes_no_bit(name: str, target: str, format: str) -> None:
    drafter = plugins.find("drafters", name).build(EAGER)
    for width in SOME_WIDTHS:
        bench(target, format).check(drafter, plain(target, format), width=width)
    bench(target, format).check(drafter, plain(target, format))


Script = Callable[[Sequence[int], int, int], list[int]]

SCRIPTS: dict[str, Script] = {
    "all right": lambda text, at, width: list(text[at : at + width]),
    "all wrong": lambda text, at, width: [(token + 1) % 512 for token in text[at : at + width]],
    "random": lambda text, at, width: [(at * 97 + each * 31) % 512 for each in range(width)],
    "right for a while": lambda text, at, width: [
        *text[at : at + at % (width + 1)],
        *([9] * width),
    ][:width],
}


@everywhere
@pytest.mark.parametrize("script", SCRIPTS)
def test_whatever_is_drafted_changes_no_bit(script: str, target: str, format: str) -> None:
    place = bench(target, format)
    for name, sample in SAMPLING.items():
        expected = plain(target, format)[name]
        text = [*PROMPT, *expected.tokens]
        for width in WIDTHS if target in THOROUGH else SOME_WIDTHS:
            drafter = Scripted(partial(SCRIPTS[script], text))
            told = place.told(drafter, SpecOptions(width=width), sample)
            assert told.tokens == expected.tokens, (name, width)
            np.testing.assert_array_equal(told.last, expected.last)
            accepted = [step.accepted for step in told.steps if step.passed]
            if script == "all right":
                assert len(accepted) == -(-(TOKENS - 1) // (width + 1))
            elif script == "all wrong":
                assert not any(accepted)


class Scripted(ScriptedDrafter):
    """Sees no rows: those of a real model are its device's own."""

    def __init__(self, script: Callable[[int, int], list[int]]) -> None:
        super().__init__(script, taps=())


class Sure:
    """Says the same few tokens always, with second thoughts that are right."""

    name, taps, longest, nbytes = "sure", (), 4, 0

    def __init__(self, text: Sequence[int]) -> None:
        self._text = text

    def draft(self, history: Sequence[int], width: int) -> Draft:
        count = min(width, self.longest)
        right = [*self._text, *[1] * count][len(history) : len(history) + count]
        candidates = np.array([[5, token, 6] for token in right], np.int32)
        log_probs = np.log(np.array([[0.5, 0.4, 0.1]] * count, np.float32))
        return Draft((5,) * count, candidates, log_probs)

    def observe(
        self, tokens: Sequence[int], positions: range, taps: Sequence[Any], coming: int = 0
    ) -> None:
        pass

    def truncate(self, length: int) -> None:
        pass


@everywhere
def test_a_branch_off_the_best_guess_is_followed_to_the_bit(target: str, format: str) -> None:
    place = bench(target, format)
    for name, sample in SAMPLING.items():
        expected = plain(target, format)[name]
        drafter = Sure([*PROMPT, *expected.tokens])
        told = place.told(drafter, SpecOptions(tree=15), sample)
        assert told.tokens == expected.tokens
        np.testing.assert_array_equal(told.last, expected.last)
        assert max(step.accepted for step in told.steps) >= 2


@everywhere
def test_several_drafters_together_change_no_bit(target: str, format: str) -> None:
    ngrams = [plugins.find("drafters", name).build(EAGER) for name in RULES]
    drafter = FirstOf([drafter_from_file(FILES[0], target, format), *ngrams])
    for width in (None, 1, 4, 16):
        bench(target, format).check(drafter, plain(target, format), width=width)


def test_no_kind_of_draft_is_left_out() -> None:
    tried = {
        kind
        for name in FILES
        for kind in file_kinds()
        if kind.claims(*tensors_of(name.removeprefix("tiny-")))
    }
    others = {plugins.find("drafters", name) for name in ("draft_model", "mtp")}
    assert tried == set(file_kinds()) - others  # which have tests of their own
