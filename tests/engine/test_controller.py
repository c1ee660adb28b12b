"""Widths by measured cost and acceptance: what pays is done, what does not costs next to nothing.

Time is that of a machine in the mind: n rows take 1 + 0.18 (n - 1), disturbed at random.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from turbodflash_engine.decode.accept import Verdict
from turbodflash_engine.decode.controller import Controller, Fixed
from turbodflash_engine.decode.costs import Costs, Passes, by_rows, by_tokens
from turbodflash_engine.decode.drafting import Drafting
from turbodflash_engine.decode.guess import NOTHING
from turbodflash_engine.decode.rates import Rates
from turbodflash_engine.drafters._base import Draft
from turbodflash_engine.drafters._first import FirstOf
from turbodflash_engine.layers.steps import FEW_ROWS
from turbodflash_engine.options import SpecOptions


@dataclass
class Machine:
    """Its clock, what is true of the next tokens, and a drafter that is right at given rates.

    rates: of the first, the second, ... token drafted at a position of the text; the last is that
    of all further ones.
    """

    rates: Callable[[int], Sequence[float]]
    draft_cost: float = 0.3
    per_token: bool = False
    longest: int = 7
    seed: int = 0
    noise: float = 0.08
    row: float = 0.18
    now: float = 0.0
    spent: float = 0.0
    right: int = 0
    count: int = 99
    asked: list[int] = field(default_factory=list)
    name = "ngram-simple"
    taps: tuple[int, ...] = ()
    nbytes = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def spend(self, cost: float) -> None:
        """The clock is disturbed; what is counted is not."""
        disturbed = self._random.lognormvariate(0, self.noise)
        if self._random.random() < 0.02:
            disturbed *= self._random.uniform(2, 6)
        self.now += cost * disturbed
        self.spent += cost

    def draft(self, history: Sequence[int], width: int) -> Draft:
        self.asked.append(width)
        self.spend(self.draft_cost * (width if self.per_token else 1))
        rates, self.right = self.rates(len(history)), 0
        count = min(width, self.count)
        while self.right < count:
            if self._random.random() >= rates[min(self.right, len(rates) - 1)]:
                break
            self.right += 1
        start = len(history)
        wrong = [-1] * (count - self.right)
        return Draft((*range(start, start + self.right), *wrong))

    def observe(self, *seen: object) -> None: ...

    def truncate(self, length: int) -> None: ...

    def speed(self, tokens: int = 512, drafting: Drafting | None = None) -> float:
        """Tokens a plain pass. Token number n of the text is n."""
        drafting = drafting or Drafting(self, SpecOptions(), lambda: self.now)
        drafting.begin()
        said, began = 1, self.spent
        while said < tokens:
            guess = drafting.guess(range(said), tokens - said - 1, 99)
            before = self.now
            self.spend(1 + self.row * len(guess.tokens))
            pairs = enumerate(guess.tokens)
            right = next((at for at, token in pairs if token != said + at), len(guess.tokens))
            new = list(range(said, said + right + 1))
            tested = min(right + 1, len(guess.tokens))
            verdict = Verdict(new, list(range(right + 1)), tested, right)
            drafting.learn(guess, verdict, self.now - before)
            said += len(new)
        return tokens / (self.spent - began)


def always(*rates: float) -> Callable[[int], Sequence[float]]:
    return lambda position: rates


def speeds(count: int = 20, tokens: int = 512, **machine: object) -> list[float]:
    return [Machine(seed=seed, **machine).speed(tokens) for seed in range(count)]  # type: ignore[arg-type]


def best_fixed(**machine: object) -> float:
    """The speed of the width that would have been best."""
    found = []
    for width in (0, 1, 2, 3, 4, 5, 7):
        each = Machine(**machine)  # type: ignore[arg-type]
        fixed = Drafting(each, SpecOptions(width=width), lambda each=each: each.now)  # type: ignore[misc]
        found.append(each.speed(4096, fixed))
    return max(found)


@pytest.mark.parametrize("draft_cost", [0.001, 0.05, 0.5, 1.0])
def test_a_hopeless_drafter_costs_next_to_nothing(draft_cost: float) -> None:
    assert min(speeds(rates=always(0.0), draft_cost=draft_cost)) >= 0.975
    assert min(speeds(5, 4096, rates=always(0.0), draft_cost=draft_cost)) >= 0.99


@pytest.mark.parametrize("draft_cost", [0.2, 0.4])
def test_a_weak_drafter_is_never_followed_to_ruin(draft_cost: float) -> None:
    found = speeds(40, rates=always(0.48, 0.46, 0.41, 0.44), draft_cost=draft_cost)
    assert min(found) >= 0.95
    assert fmean(found) >= (1.02 if draft_cost == 0.2 else 0.97)


@pytest.mark.parametrize(
    ("rate", "draft_cost", "share"), [(0.6, 0.3, 0.9), (0.8, 0.3, 0.85), (0.9, 0.3, 0.85)]
)
def test_a_good_drafter_is_used_nearly_as_well_as_can_be(
    rate: float, draft_cost: float, share: float
) -> None:
    best = best_fixed(rates=always(rate), draft_cost=draft_cost)
    assert best > 1.1
    assert fmean(speeds(rates=always(rate), draft_cost=draft_cost)) >= share * best


def test_a_drafter_that_drafts_token_by_token_is_asked_for_few_where_few_are_right() -> None:
    machine = Machine(always(0.6), draft_cost=0.12, per_token=True, longest=16)
    assert machine.speed(1024) > 1.05
    assert fmean(machine.asked) < 5


def test_guesses_for_nothing_that_are_wrong_are_not_verified_again_and_again() -> None:
    found = speeds(rates=always(0.1, 0.5), draft_cost=0.002, longest=48)
    assert min(found) >= 0.97


def test_guesses_for_nothing_that_are_right_are_followed_far() -> None:
    found = speeds(rates=always(0.97, 0.99), draft_cost=0.002, longest=48)
    assert fmean(found) >= 2.5


@pytest.mark.parametrize("count", [0, 4])
def test_who_drafts_for_next_to_nothing_is_asked_in_every_pass(count: int) -> None:
    for seed in range(10):
        machine = Machine(always(0.0), draft_cost=0.01, count=count, seed=seed)
        machine.speed(512)
        assert len(machine.asked) >= 490


def test_nothing_for_nothing_is_no_promise_of_cheap_drafts() -> None:
    """A draft may be silent for long, as past the end of its own context, and dear again then."""
    for seed in range(10):
        machine = Machine(always(0.0), draft_cost=0.001, count=0, seed=seed)
        drafting = Drafting(machine, SpecOptions(), lambda machine=machine: machine.now)  # type: ignore[misc]
        machine.speed(200, drafting)
        machine.draft_cost, machine.count = 0.5, 99
        assert machine.speed(512, drafting) >= 0.95


def test_a_drafter_that_becomes_good_is_found_out() -> None:
    for seed in range(10):
        machine = Machine(lambda at: (0.0,) if at < 200 else (0.95,), seed=seed)
        drafting = Drafting(machine, SpecOptions(), lambda machine=machine: machine.now)  # type: ignore[misc]
        assert machine.speed(200, drafting) >= 0.96
        machine.rates = always(0.95)
        machine.speed(600, drafting)
        assert machine.speed(400, drafting) >= 1.5


def test_a_drafter_that_becomes_bad_is_left() -> None:
    for seed in range(10):
        machine = Machine(always(0.95), seed=seed)
        drafting = Drafting(machine, SpecOptions(), lambda machine=machine: machine.now)  # type: ignore[misc]
        assert machine.speed(400, drafting) >= 1.5
        machine.rates = always(0.0)
        assert machine.speed(512, drafting) >= 0.95


def test_where_rows_cost_nothing_all_are_verified() -> None:
    for seed in range(12):
        machine = Machine(always(0.7), draft_cost=0.1, row=0.0, seed=seed)
        drafting = Drafting(machine, SpecOptions(), lambda machine=machine: machine.now)  # type: ignore[misc]
        machine.speed(400, drafting)
        assert machine.speed(400, drafting) >= 2.2


@settings(deadline=None, max_examples=40)
@given(
    rates=st.lists(st.floats(0, 1), min_size=1, max_size=8),
    draft_cost=st.floats(0.001, 1.5),
    row=st.floats(0.02, 0.6),
    longest=st.integers(1, 32),
    count=st.integers(0, 32),
    seed=st.integers(0, 1000),
)
@example([1.0, 0.5], 1.0, 0.5, 3, 3, 489)  # the first plain pass that counts is disturbed
def test_whatever_the_drafter_drafting_is_never_much_slower(
    rates: list[float], draft_cost: float, row: float, longest: int, count: int, seed: int
) -> None:
    machine = Machine(always(*rates), draft_cost, longest=longest, row=row, count=count, seed=seed)
    assert machine.speed(512) >= 0.93


def test_a_probe_is_not_verified_and_counted() -> None:
    machine = Machine(always(0.0))
    drafting = Drafting(machine, SpecOptions(), lambda: machine.now)
    machine.speed(512, drafting)
    first = drafting.probes
    machine.speed(512, drafting)
    assert 3 <= first <= 10
    assert drafting.probes <= first + 3


def test_every_drafter_of_several_has_its_own_width() -> None:
    bad = Machine(always(0.0), draft_cost=0.001, longest=48)
    good = Machine(always(0.95), draft_cost=0.2)
    good.name = "draft-dflash"
    both = FirstOf([good, bad])  # type: ignore[list-item]
    drafting = Drafting(both, SpecOptions(), lambda: good.now + bad.now)
    good.speed(200, drafting)
    assert good.speed(400, drafting) >= 1.6
    drafting.guess(range(1000), 50, 50)
    assert len(bad.asked) > 50


def test_a_fallback_is_followed_where_the_draft_is_not() -> None:
    def speed(good: float, draft: Sequence[float]) -> float:
        block, text = Machine(always(*draft)), Machine(always(good), draft_cost=0.001, seed=1)
        both = FirstOf([block], fallback=text)  # type: ignore[list-item, arg-type]
        drafting = Drafting(both, SpecOptions(), lambda: block.now + text.now)
        block.name = "draft-dflash"
        plain = block.speed(2048, drafting)
        return 2048 / (2048 / plain + text.spent)

    assert speed(0.6, [0.0]) >= 1.3
    assert speed(0.0, [0.0]) >= 0.98
    assert speed(0.6, [0.95]) >= 0.98 * speed(0.0, [0.95])


# what is known


def test_the_first_measurement_of_a_size_is_not_believed() -> None:
    costs = Costs(by_rows)
    assert costs(1) is None
    costs.add(1, 90.0)
    assert costs(1) is None
    assert 1 not in costs
    costs.add(1, 2.0)
    assert costs(1) == 2.0
    assert 1 in costs


def test_a_disturbance_is_not_believed() -> None:
    costs = Costs(by_rows)
    for seconds in [9.0, 1.0, 1.0, 50.0, 1.0, 50.0, 1.0]:
        costs.add(4, seconds)
    assert costs(4) == 1.0
    for _ in range(16):
        costs.add(4, 3.0)
    assert costs(4) == 3.0


def test_what_seems_too_dear_once_is_tried_again() -> None:
    """Passes of two rows cost next to nothing, but the first that is measured was disturbed."""
    passes = Passes()
    for rows, seconds in ((1, 1.0), (1, 1.0), (2, 1.0), (2, 6.0)):
        passes.add(rows, seconds)
    assert passes(2) == by_rows(2, 1)
    passes.add(2, 1.02)
    assert passes(2) == 1.02


def test_what_was_not_measured_lies_between_or_follows_the_expectation() -> None:
    costs = Costs(by_rows)
    for size, seconds in ((1, 1.0), (5, 3.0)):
        for measured in (9.0, seconds, seconds):
            costs.add(size, measured)
    assert costs(3) == 2.0
    assert costs(9) == pytest.approx(3.0 * (1 + 8 * 0.18) / (1 + 4 * 0.18))
    drafts = Costs(by_tokens)
    drafts.add(4, 9.0)
    drafts.add(4, 1.0)
    assert (drafts(2), drafts(4), drafts(8)) == (0.5, 1.0, 1.0)


def test_a_plain_pass_costs_no_more_than_a_longer_one() -> None:
    passes = Passes()
    for rows, seconds in ((1, 5.0), (4, 2.0)):
        for measured in (9.0, seconds, seconds):
            passes.add(rows, measured)
    assert passes.plain == pytest.approx(2.0 / 1.06)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=40))
def test_rates_are_shares_and_places_never_tried_are_a_little_better_than_the_one_before(
    chains: list[tuple[int, int]],
) -> None:
    rates = Rates(0.7)
    for hits, tries in chains:
        rates.add(min(hits, tries), tries)
    found = rates.first(9)
    assert all(0 <= rate <= 1 for rate in found)
    assert found[6] <= found[7] <= found[8]
    assert rates.first(3) == found[:3]


def test_rates_come_near_what_happens() -> None:
    rates = Rates(0.7)
    for _ in range(100):
        rates.add(2, 3)
    assert rates.first(3) == pytest.approx([1.0, 1.0, 0.0], abs=0.1)


# what a person asked for


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40))
def test_a_fixed_width_is_kept_to(width: int, most: int, drafted: int) -> None:
    fixed = Fixed(width)
    asked = fixed.ask(most)
    assert asked == min(width, most)
    assert fixed.offered(asked, min(asked, drafted), 1.0) == min(asked, drafted)


def test_a_draft_of_too_few_tokens_is_thrown_away() -> None:
    for width in (None, 7):
        machine = Machine(always(1.0), count=3)
        options = SpecOptions(n_min=4, width=width)
        drafting = Drafting(machine, options, lambda machine=machine: machine.now)  # type: ignore[misc]
        assert drafting.guess(range(5), 50, 50) is NOTHING
        machine.count = 5
        assert len(drafting.guess(range(5), 50, 50).tokens) in (4, 5)


def test_a_width_below_what_is_worth_it_is_never_chosen() -> None:
    controller = Controller(Passes(), longest=8, fewest=4)
    assert controller.ask(3) == 0
    assert controller.ask(8) >= 4


@given(st.integers(1, 64), st.integers(1, 64))
def test_wide_passes_come_in_few_sizes_and_never_in_none(count: int, fewest: int) -> None:
    """A pass of a size that was not made before costs more than the rows that it has."""
    controller = Controller(Passes(), longest=64, fewest=fewest)
    controller.verified(64, 64, 65, 65)  # all are right
    controller.ask(64)
    width = controller.offered(64, count, 0.001)
    assert bool(width) == (count >= fewest)
    assert width < FEW_ROWS or (width + 1) % FEW_ROWS == 0 or width == fewest


def test_a_guess_never_goes_beyond_the_room() -> None:
    for options in (SpecOptions(), SpecOptions(width=16), SpecOptions(tree=16)):
        machine = Machine(always(1.0), longest=16)
        drafting = Drafting(machine, options, lambda machine=machine: machine.now)  # type: ignore[misc]
        for room in range(20):
            assert len(drafting.guess(range(5), room, room).tokens) <= room


@pytest.mark.parametrize("draft_cost", [0.002, 0.3])
def test_what_was_won_with_one_text_is_not_lost_with_the_next(draft_cost: float) -> None:
    for seed in range(20):
        machine = Machine(always(0.9), draft_cost=draft_cost, seed=seed)
        drafting = Drafting(machine, SpecOptions(), lambda machine=machine: machine.now)  # type: ignore[misc]
        assert machine.speed(512, drafting) > 1.5
        machine.rates = always(0.0)
        assert machine.speed(128, drafting) >= 0.97


def test_a_plain_pass_that_comes_after_drafts_is_always_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(always(0.97))
    drafting = Drafting(machine, SpecOptions(), lambda: machine.now)
    made: list[int] = []
    measured: list[int] = []
    learn, add = drafting.learn, drafting._passes.add
    monkeypatch.setattr(
        drafting,
        "learn",
        lambda guess, *rest: (made.append(len(guess.tokens)), learn(guess, *rest)),
    )
    monkeypatch.setattr(
        drafting._passes, "add", lambda size, seconds: (measured.append(size), add(size, seconds))
    )
    machine.speed(16384, drafting)
    after_drafts = sum(before > 0 and not now for before, now in pairwise(made))
    assert measured.count(1) >= after_drafts > 20
