"""A plain model as the drafter: it says what it would say by itself, and reads nothing twice."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine import toy
from tests.engine.tiny_models import golden, tensors_of
from turbodflash_engine import plugins
from turbodflash_engine.drafters._base import FileKind, Setting
from turbodflash_engine.drafters.draft_model import PASS_ROWS, PROMPT_ROWS, DraftModel
from turbodflash_engine.errors import BadModel
from turbodflash_engine.layers.tensors import Tensors
from turbodflash_engine.metadata import Metadata
from turbodflash_engine.models._base import CachePlan, Model, Shared
from turbodflash_engine.options import SpecOptions
from turbodflash_engine.quant import weight_type
from turbodflash_kernels.device import open_device

KIND: FileKind = plugins.find("drafters", "draft_model")

tokens_of_text = st.lists(st.integers(8, 11), min_size=1, max_size=6)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("say"), tokens_of_text),
        st.tuples(st.just("step"), st.tuples(st.integers(1, 5), st.integers(0, 5))),
        st.tuples(st.just("cut"), st.floats(0, 1)),
    ),
    max_size=10,
)


class ToyModel(toy.ToyModel):
    vocabulary = toy.VOCAB

    @property
    def shared(self) -> Shared:
        return shared(self.vocabulary)


def shared(vocabulary: int) -> Shared:
    nothing = object()
    return Shared(nothing, nothing, 1.0, 1, 1, vocabulary)  # type: ignore[arg-type]


def drafter_of(model: Model, vocabulary: int = toy.VOCAB, **options: object) -> DraftModel:
    return DraftModel(model, shared(vocabulary), SpecOptions(**options))  # type: ignore[arg-type]


def greedy(model: ToyModel, text: Sequence[int], count: int) -> tuple[int, ...]:
    seen = list(text)
    for _ in range(count):
        seen.append(int(model.row(seen).argmax()))
    return tuple(seen[len(text) :])


class Talk:
    """A text that grows as the loop lets it grow, and what the drafter saw of it."""

    def __init__(self, drafter: DraftModel) -> None:
        self.drafter, self.text = drafter, [8]  # the last token is never observed yet

    def say(self, tokens: Sequence[int]) -> None:
        start = len(self.text) - 1
        seen = [self.text[-1], *tokens][:-1]
        self.drafter.observe(seen, range(start, start + len(seen)), [])
        self.text += tokens

    def step(self, width: int, right: int) -> tuple[int, ...]:
        drafted = self.drafter.draft(self.text, width).tokens
        kept = drafted[:right]
        wrong = 8 if len(kept) == len(drafted) or drafted[len(kept)] != 8 else 9
        self.say([*kept, wrong])
        return drafted

    def cut(self, share: float) -> None:
        length = int(share * (len(self.text) - 1))
        self.drafter.truncate(length)
        self.text = [*self.text[:length], 10]


@given(steps)
def test_it_drafts_what_the_model_would_say(script: list[tuple[str, object]]) -> None:
    model = ToyModel()
    talk = Talk(drafter_of(model))
    for do, what in script:
        if do == "step":
            width, right = what  # type: ignore[misc]
            expected = greedy(model, talk.text, width)
            assert talk.step(width, right) == expected
        else:
            getattr(talk, do)(what)


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 5)), max_size=8))
def test_what_came_true_is_not_read_again(script: list[tuple[int, int]]) -> None:
    model = ToyModel()
    talk = Talk(drafter_of(model))
    for width, right in script:
        before = sum(map(len, model.passes))
        known = len(talk.drafter._behind) + 1  # to be read before anything is drafted
        drafted = talk.step(width, right)
        assert sum(map(len, model.passes)) - before == known + len(drafted) - 1
        all_came_true = right >= len(drafted)
        assert len(talk.drafter._behind) == (1 if all_came_true else 0)


def test_a_prompt_is_read_when_it_comes_and_single_tokens_are_not() -> None:
    model = ToyModel(capacity=2000)
    drafter = drafter_of(model)
    prompt = [8 + index % 5 for index in range(PASS_ROWS + 100)]
    drafter.observe(prompt, range(len(prompt)), [])
    assert [len(run) for run in model.passes] == [PASS_ROWS, 100]
    for index in range(PROMPT_ROWS):
        drafter.observe([9], range(len(prompt) + index, len(prompt) + index + 1), [])
    assert len(model.passes) == 2
    history = [*prompt, *[9] * PROMPT_ROWS, 10]
    assert drafter.draft(history, 2).tokens == greedy(model, history, 2)
    assert [len(run) for run in model.passes[2:]] == [PROMPT_ROWS + 1, 1]


def test_it_stops_where_its_context_ends_and_goes_on_after_a_cut() -> None:
    model = ToyModel(capacity=10)
    talk = Talk(drafter_of(model))
    talk.say([9] * 7)
    assert len(talk.drafter.draft(talk.text, 5).tokens) == 3
    talk.say([9] * 2)
    assert len(talk.drafter.draft(talk.text, 5).tokens) == 1
    talk.say([9] * 40)
    assert talk.drafter.draft(talk.text, 5).tokens == ()
    talk.drafter.truncate(4)
    talk.text = [*talk.text[:4], 11]
    assert talk.drafter.draft(talk.text, 2).tokens == greedy(model, talk.text, 2)


@given(st.floats(0.01, 1), tokens_of_text)
def test_it_stops_where_it_is_not_sure(p_min: float, text: list[int]) -> None:
    model = ToyModel()
    drafted = drafter_of(model, p_min=p_min).draft([8], 6).tokens
    seen = [8]
    for token in greedy(model, seen, 6):
        best = np.sort(model.row(seen).astype(np.float64))[-10:]
        if np.exp(best[-1]) / np.exp(best).sum() < p_min:
            break
        seen.append(token)
    assert list(drafted) == seen[1:]


def test_for_a_tree_it_tells_its_second_thoughts() -> None:
    model = ToyModel()
    draft = drafter_of(model, tree=4).draft([8], 3)
    assert draft.candidates is not None
    assert draft.log_probs is not None
    assert draft.candidates.shape == draft.log_probs.shape == (3, 8)
    assert draft.candidates[:, 0].tolist() == list(draft.tokens)
    np.testing.assert_array_equal(draft.candidates[0], np.argsort(-model.row([8]))[:8])
    assert (np.diff(draft.log_probs) <= 0).all()
    assert (np.exp(draft.log_probs).sum(1) <= 1).all()
    assert drafter_of(ToyModel()).draft([8], 3).candidates is None


def test_a_failing_pass_leaves_the_drafter_as_it_was() -> None:
    model = ToyModel()
    talk = Talk(drafter_of(model))
    talk.say([9, 10])
    model.fail_at_pass = len(model.passes) + 2
    with pytest.raises(KeyboardInterrupt):
        talk.drafter.draft(talk.text, 4)
    assert talk.step(3, 1) == greedy(model, [8, 9, 10], 3)


def test_it_never_says_a_token_that_the_target_lacks_and_bears_one_that_it_lacks() -> None:
    model = ToyModel()
    small = drafter_of(model, vocabulary=12)
    assert set(small.draft([8], 16).tokens) <= set(range(12))
    large = drafter_of(model, vocabulary=toy.VOCAB + 100)
    large.observe([8, toy.VOCAB + 50], range(2), [])
    assert len(large.draft([8, toy.VOCAB + 50, 9], 2).tokens) == 2


def test_limits() -> None:
    assert drafter_of(ToyModel()).longest == 16
    assert drafter_of(ToyModel(), n_max=3).longest == 3
    assert len(drafter_of(ToyModel(), n_max=3).draft([8], 9).tokens) == 3


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_a_file_of_a_plain_model_becomes_a_drafter(device: str) -> None:
    metadata, infos = tensors_of("llama")
    tensors = Tensors(infos, "tiny.gguf", lambda info: weight_type(info.type, info.name))
    assert KIND.claims(metadata, tensors)
    config = KIND.read(metadata)
    KIND.check(config, shared(512), SpecOptions())
    tensors.check(KIND.layout(config, tensors))
    plan = CachePlan(64, "f32", "f32")
    setting = Setting(open_device(device), shared(512), plan, SpecOptions())
    drafter = KIND.build(config, tensors, setting)

    prompt, expected = golden("llama")["tokens"].tolist(), golden("llama")["greedy_tokens"].tolist()
    drafter.observe(prompt[:-1], range(len(prompt) - 1), [])
    assert drafter.draft(prompt, 9).tokens == tuple(expected)
    assert drafter.nbytes > sum(info.nbytes for info in infos.values())
    assert drafter.name == "draft-simple"
    assert drafter.taps == ()


@pytest.mark.parametrize(("vocabulary", "fits"), [(512, True), (640, True), (641, False)])
def test_vocabularies_differ_by_padding_only(vocabulary: int, fits: bool) -> None:
    config = KIND.read(tensors_of("llama")[0])
    if fits:
        KIND.check(config, shared(vocabulary), SpecOptions())
    else:
        with pytest.raises(BadModel, match="has 512 tokens and the model 641"):
            KIND.check(config, shared(vocabulary), SpecOptions())


def test_what_is_no_plain_model_is_left_to_others() -> None:
    llama = {"general.architecture": "llama", "llama.block_count": 5}
    assert KIND.claims(Metadata(llama), {"blk.4.attn_norm.weight"})
    assert not KIND.claims(Metadata(llama), {"blk.4.nextn.eh_proj.weight"})
    assert not KIND.claims(Metadata({"general.architecture": "dflash"}), set())
