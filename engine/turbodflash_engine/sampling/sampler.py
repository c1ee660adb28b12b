"""The sampler of one answer: logits in, a token out."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from turbodflash_engine.errors import BadUsage, TurbodflashError
from turbodflash_engine.options import SampleOptions
from turbodflash_engine.sampling import chain, mirostat
from turbodflash_engine.sampling.candidates import Candidates, Ids, Largest, ranked
from turbodflash_engine.sampling.dry import Breakers, Spelling, breakers_of
from turbodflash_engine.sampling.noise import Stream, uniform

MOST_SEEN = 64
"""More of the largest logits are not looked for: then all are looked at."""


class Vocabulary(Spelling, Protocol):
    """What a sampler needs to know of a tokenizer."""

    @property
    def eog(self) -> Collection[int]:
        """Tokens that end a generation."""

    @property
    def suppress(self) -> Collection[int]:
        """Tokens that must never be generated."""


class Rows(Protocol):
    """Logits of some rows, wherever they are."""

    @property
    def logits(self) -> NDArray[np.float32]:
        """All of them: [rows, vocab]."""

    def largest(self, count: int, width: int) -> Largest:
        """Of the first `width` of every row, which is less work than to have them all."""


class Sampler:
    """Chooses tokens as `options` say, on a resolved `seed`.

    With mirostat off, `choose` is a function of its arguments. With mirostat on, `mu` moves with
    every call: call it once for each token of the text, in the order of the text.
    """

    def __init__(self, options: SampleOptions, vocabulary: Vocabulary, seed: int) -> None:
        self.seed = seed
        self.mu = mirostat.start(options.mirostat_ent)
        self._options = options
        self._biased, self._bias = _biases(options, vocabulary)
        self._have_bias = frozenset(self._biased.tolist())
        self._only_lowered = bool((self._bias <= 0).all())
        self._greedy = chain.keeps_only_the_best(options)
        self._links: tuple[chain.Link, ...]
        if options.mirostat:
            self._links = (chain.temperature(options),)
        else:
            self._links = chain.chain(options, _breakers(options, vocabulary))
        self._all: Ids = np.arange(vocabulary.vocab_size)
        self._enough = self._how_many_decide()

    def sample(self, logits: NDArray[np.float32], position: int, history: Sequence[int]) -> int:
        """The token at `position`, given its logits [vocab] and all tokens before it."""
        return self.choose(self._whole(logits), position, history)

    def look(self, rows: Rows) -> list[Candidates]:
        """For `choose`: of every row all that can have a say, and no more where that is cheaper."""
        if not self._enough:
            return [self._whole(logits) for logits in rows.logits]
        largest = rows.largest(self._enough, len(self._all))
        return [largest.of(row) for row in range(len(largest.ids))]

    def choose(self, seen: Candidates, position: int, history: Sequence[int]) -> int:
        """The token at `position`, given what `look` saw and all tokens before it."""
        if self._greedy:
            return self._best(seen, position)
        if len(self._biased):
            seen = self._with_biases(seen)
        _check(seen.peak, position)
        place = chain.Place(history, position, self.seed)
        return self._draw(self.candidates(seen, place), place)

    def _how_many_decide(self) -> int:
        """Of the largest logits so many are enough; 0 if others may have a say.

        Biases that only lower can change the order of as many tokens as have one.
        """
        first = chain.active(self._options)[:1]
        if self._greedy:
            best = 1
        elif first == ("top_k",) and not self._options.mirostat:
            best = self._options.top_k
        else:
            return 0
        count = min(best + len(self._biased), len(self._all))
        return count if count <= MOST_SEEN and self._only_lowered else 0

    def _whole(self, logits: NDArray[np.float32]) -> Candidates:
        """All tokens. Logits past the vocabulary (of a table padded to a round size) are none's."""
        return Candidates(self._all, logits[: len(self._all)])

    def _with_biases(self, seen: Candidates) -> Candidates:
        if seen.order != "id" and self._have_bias.isdisjoint(seen.ids.tolist()):
            return seen
        rows, there = seen.rows_of(self._biased)
        logits = seen.logits.copy()
        logits[rows[there]] += self._bias[there]
        return seen.adjusted(logits)

    def _best(self, seen: Candidates, position: int) -> int:
        """The first of the largest; biases are lent to the logits, a copy would cost more."""
        if seen.order != "id":
            if len(self._biased) and not self._first_stays(seen):
                seen = ranked(self._with_biases(seen))
            _check(seen.logits[0], position)
            return int(seen.ids[0])
        logits = seen.logits
        lent = logits[self._biased]
        logits[self._biased] = lent + self._bias
        best = int(logits.argmax())
        peak = logits[best]
        logits[self._biased] = lent
        _check(peak, position)
        return best

    def _first_stays(self, seen: Candidates) -> bool:
        """Whether no bias can change which is the largest: that is sooner known than done."""
        in_order = seen.order == "logit" and self._only_lowered
        return in_order and int(seen.ids[0]) not in self._have_bias

    def candidates(self, seen: Candidates, place: chain.Place) -> Candidates:
        """What the chain leaves of these to draw from, before any bias."""
        left = seen
        for link in self._links:
            left = link(left, place)
        if self._options.mirostat == 1:
            return mirostat.version_1(left, self.mu, len(seen.ids))
        if self._options.mirostat == 2:
            return mirostat.version_2(left, self.mu)
        return left

    def _draw(self, candidates: Candidates, place: chain.Place) -> int:
        """Where chance enters: the candidate at a random height of the summed probabilities."""
        peak = candidates.peak
        _check(peak, place.position)
        heights = np.exp(candidates.logits.astype(np.float64) - peak).cumsum()
        total = float(heights[-1])
        height = total * uniform(place.seed, place.position, Stream.TOKEN)
        row = min(int(heights.searchsorted(height, side="right")), len(heights) - 1)
        if self._options.mirostat:
            share = math.exp(float(candidates.logits[row]) - float(peak)) / total
            self.mu = mirostat.moved(
                self.mu,
                -math.log2(share),
                self._options.mirostat_ent,
                self._options.mirostat_lr,
            )
        return int(candidates.ids[row])


def _check(peak: np.floating, position: int) -> None:
    if not math.isfinite(peak):
        raise TurbodflashError(
            f"the largest logit at position {position} is {float(peak)}; "
            "it must be a finite number",
            hint="check the logit biases and penalties; if there are none, the model file may "
            "be damaged",
        )


def _biases(options: SampleOptions, vocabulary: Vocabulary) -> tuple[Ids, NDArray[np.float32]]:
    """Token ids and what is added to their logits: the user's biases and the forbidden tokens."""
    added: dict[int, float] = {}
    for token, bias in options.logit_bias:
        if token >= vocabulary.vocab_size:
            raise BadUsage(
                f"there is a logit bias for token {token}; "
                f"this model's tokens are 0 to {vocabulary.vocab_size - 1}"
            )
        added[token] = added.get(token, 0.0) + bias
    for token in [*vocabulary.suppress, *(vocabulary.eog if options.ignore_eos else ())]:
        added[token] = -math.inf
    return np.asarray(list(added), np.int64), np.asarray(list(added.values()), np.float32)


def _breakers(options: SampleOptions, vocabulary: Vocabulary) -> Breakers:
    if "dry" not in chain.active(options):
        return {}
    return breakers_of(vocabulary, options.dry_sequence_breakers)
