"""Accounts of several answers add up to an account."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from turbodflash_engine import Speculation


@st.composite
def accounts(draw: st.DrawFn) -> Speculation:
    """What drafting may have done: each step drafts some tokens and accepts some of these."""
    steps = draw(
        st.lists(st.integers(0, 4).flatmap(lambda w: st.tuples(st.just(w), st.integers(0, w))))
    )
    widths, histogram = [0] * 5, [0] * 5
    for width, accepted in steps:
        widths[width] += 1
        histogram[accepted] += bool(width)
    accepted = sum(kept for _, kept in steps)
    return Speculation(
        drafter="ngram-mod",
        steps=len(steps),
        drafts=sum(histogram),
        drafted=sum(width for width, _ in steps),
        tested=sum(min(width, kept + 1) for width, kept in steps),
        accepted=accepted,
        emitted=len(steps) + accepted,
        widths=tuple(widths),
        histogram=tuple(histogram) if any(histogram) else (),
        seconds_draft=float(len(steps)),
        nbytes=7,
    )


@given(accounts(), accounts())
def test_the_identities_hold_for_the_sum_as_for_its_parts(
    one: Speculation, two: Speculation
) -> None:
    both = one.plus(two)
    assert both == two.plus(one)
    assert both.emitted == both.steps + both.accepted
    assert both.accepted <= both.tested <= both.drafted
    assert sum(both.widths) == both.steps == one.steps + two.steps
    assert sum(both.histogram) == both.drafts == sum(both.widths[1:])
    assert both.seconds_draft == one.seconds_draft + two.seconds_draft
    assert (both.drafter, both.nbytes, both.synthetic) == ("ngram-mod", 7, False)
    if both.drafts:
        assert abs(sum(both.per_position) - both.accepted / both.drafts) < 1e-9
