"""How many tokens of a draft are worth verifying, zero included."""

from __future__ import annotations

from typing import Protocol

from turbodflash_engine.decode.costs import Costs, Passes, by_rows, by_tokens
from turbodflash_engine.decode.rates import MEMORY, Rates
from turbodflash_engine.layers.steps import FEW_ROWS

HOPE = 0.7  # the acceptance of a token, before anything is known
DRAFT = 0.3  # the cost of a draft, before it is measured
MARGIN = 0.05  # of what drafting costs, that it must bring beyond its costs
RARE = 0.02  # tokens accepted so seldom are not looked at
WATCHED = 0.6  # what was known long ago weighs against a draft that was watched
MODERATE = 4  # tokens of a draft that is only watched

FIRST_CREDIT = 1.0  # what drafting may lose while nothing is known of the drafter
CREDIT = 0.4  # what it may lose in a later text before it has won any there
MOST_CREDIT = 6.0  # however much it has won
ALLOWANCE = 0.003  # what a plain pass restores of the first credit
PROMISE, TRUST = 1.0, 0.6  # drafts that would have won so much earn so much credit

FIRST_WAIT, LONGEST_WAIT = 8, 256  # passes between two looks at a drafter that does not pay
LOOK = 32  # passes without a draft after which a width is looked for again
CHEAP = 0.02  # a draft that costs less is asked for always, and not accounted for if none comes


class Width(Protocol):
    """Decides about one drafter, pass by pass."""

    def begin(self) -> None:
        """Another text."""

    def ask(self, most: int) -> int:
        """The tokens to ask the drafter for, `most` or fewer; 0 = it is not asked now."""

    def offered(self, asked: int, count: int, seconds: float) -> int:
        """It drafted `count` of the tokens asked for: how many of them are verified.

        A draft of which none is verified may be watched: held against what comes anyway.
        """

    def verified(self, matched: int, tested: int, rows: int, emitted: int) -> None:
        """A pass of so many rows verified it. tested: tokens compared; matched: those right."""

    def watched(self, matched: int, tested: int) -> None:
        """Of a draft that was not verified, so many tokens were what came."""

    def waited(self) -> None:
        """A pass was made without verifying a draft of it."""


class Fixed:
    """Always as many as a person asked for."""

    def __init__(self, width: int) -> None:
        self._width = width

    def begin(self) -> None:
        pass

    def ask(self, most: int) -> int:
        return min(most, self._width)

    def offered(self, asked: int, count: int, seconds: float) -> int:
        return min(asked, count)

    def verified(self, matched: int, tested: int, rows: int, emitted: int) -> None:
        pass

    def watched(self, matched: int, tested: int) -> None:
        pass

    def waited(self) -> None:
        pass


class Controller:
    """Whatever makes most tokens a second by what is known.

    Known are how often each token of a draft was accepted, and what drafts and passes cost. When
    no width pays, the drafter is only watched: after 8, 16, 32, ... passes it drafts, nothing is
    verified, and its guess is held against what comes. An account bounds what it may lose against
    plain decoding, however it misleads: three thousandths, less than half a pass in a text where it
    has not won yet, one in the first, and a few where it has. It is restored by guesses that were
    watched and would have won.

    Costs, and what the account holds, are in plain passes: passes of one row.
    """

    def __init__(self, passes: Passes, longest: int, fewest: int = 1) -> None:
        """longest, fewest: tokens of a draft that may be verified."""
        self._passes, self._drafts = passes, Costs(by_tokens)
        self._accepted, self._drafted = Rates(HOPE), Rates(1.0)
        self._longest, self._fewest = longest, max(fewest, 1)
        self._account, self._promise = FIRST_CREDIT, 0.0
        self._width, self._asked = 0, 0
        self._verifying = self._cheap = False
        self._since, self._gap, self._wait = 0, 0, FIRST_WAIT

    def begin(self) -> None:
        if self._asked:
            self._account = min(self._account, CREDIT)

    def ask(self, most: int) -> int:
        most = min(most, self._longest)
        if most < self._fewest:
            return 0
        if self._since % LOOK == 0:
            drafted = [1.0] * most if self._cheap else self._drafted.first(most)
            self._width = self._best(most, drafted)
        width = min(self._width, most)
        self._verifying = width >= self._fewest and self._account > 0
        if self._cheap:
            return most
        if self._verifying:
            return width
        return min(most, max(MODERATE, self._fewest)) if self._since >= self._wait else 0

    def offered(self, asked: int, count: int, seconds: float) -> int:
        if self._cheap and not count:
            return 0
        self._asked = asked
        self._drafted.add(count, min(count + 1, asked))
        if self._verifying or self._cheap or asked not in self._drafts:
            self._drafts.add(asked, seconds)  # one made after a long wait has much to catch up with
            self._cheap = self._draft_cost(asked) < CHEAP
        if self._verifying and (width := self._best(count, [1.0] * count)):
            return width
        self._gap, self._since = self._since, 0
        self._earn(-self._draft_cost(asked))
        if not count:
            self._wait_longer()
        return 0

    def verified(self, matched: int, tested: int, rows: int, emitted: int) -> None:
        self._accepted.add(matched, tested)
        self._since = 0
        self._earn(emitted - self._pass_cost(rows) - self._draft_cost(self._asked))
        if self._account >= MOST_CREDIT:
            self._wait = FIRST_WAIT

    def watched(self, matched: int, tested: int) -> None:
        self._accepted.add(matched, tested, max(MEMORY**self._gap, WATCHED))
        self._since = 0
        width = max(self._best(tested, [1.0] * tested, at_any_price=True), self._fewest)
        won = 1 + min(matched, width) - self._pass_cost(1 + width) - self._draft_cost(self._asked)
        if won < 0:
            self._wait_longer()
        self._promise = max(self._promise + won, 0.0)
        if self._promise >= PROMISE:
            self._promise, self._account = 0.0, max(self._account, TRUST)

    def waited(self) -> None:
        self._since += 1
        if self._account < CREDIT:
            self._earn(ALLOWANCE)

    def _wait_longer(self) -> None:
        self._wait = min(2 * self._wait, LONGEST_WAIT)

    def _earn(self, passes: float) -> None:
        self._account = min(self._account + passes, MOST_CREDIT)

    def _best(self, most: int, drafted: list[float], at_any_price: bool = False) -> int:
        """The width, of those up to `most`, that makes most tokens a second; 0 = none pays.

        Wide passes come in few sizes: one that was not made before takes half as long again.

        drafted: how likely a draft has a first, a second, ... token once it had those before.
        """
        best, best_speed = 0, 0.0 if at_any_price else 1.0
        tokens = rows = here = right = 1.0
        accepted = self._accepted.first(most)
        for width in range(1, most + 1):
            here *= drafted[width - 1]
            right *= accepted[width - 1]
            if here * right < RARE:
                break
            rows += here
            tokens += here * right
            if max(FEW_ROWS, self._fewest + 1) <= width and (width + 1) % FEW_ROWS:
                continue
            cost = self._pass_cost(rows) + self._draft_cost(width)
            pays = at_any_price or tokens - 1 > (1 + MARGIN) * (cost - 1)
            if width >= self._fewest and pays and tokens / cost > best_speed:
                best, best_speed = width, tokens / cost
        return best

    def _pass_cost(self, rows: float) -> float:
        plain, seconds = self._passes.plain, self._passes(rows)
        return seconds / plain if plain and seconds else by_rows(rows, 1)

    def _draft_cost(self, tokens: int) -> float:
        plain, seconds = self._passes.plain, self._drafts(tokens)
        return seconds / plain if plain and seconds else DRAFT
