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
from turbodflash_engine.sampling.candidates import Candidates, Ids, Reals
from turbodflash_engine.sampling.dry import Breakers, Spelling, breakers_of
from turbodflash_engine.sampling.noise import Stream, uniform


class Vocabulary(Spelling, Protocol):
    """What a sampler needs to know of a tokenizer."""

    @property
    def eog(self) -> Collection[int]:
        """Tokens that end a generation."""

    @property
    def suppress(self) -> Collection[int]:
        """Tokens that must never be generated."""


class Sampler:
    """Chooses tokens as `options` say, on a resolved `seed`.

    With mirostat off, `sample` is a function of its arguments. With mirostat on, `mu` moves with
    every call: call it once for each token of the text, in the order of the text.
    """

    def __init__(self, options: SampleOptions, vocabulary: Vocabulary, seed: int) -> None:
        self.seed = seed
        self.mu = mirostat.start(options.mirostat_ent)
        self._options = options
        self._biased, self._bias = _biases(options, vocabulary)
        self._greedy = chain.keeps_only_the_best(options)
        self._links: tuple[chain.Link, ...]
        if options.mirostat:
            self._links = (chain.temperature(options),)
        else:
            self._links = chain.chain(options, _breakers(options, vocabulary))
        self._all: Ids = np.arange(vocabulary.vocab_size)

    def sample(self, logits: NDArray[np.float32], position: int, history: Sequence[int]) -> int:
        """The token at `position`, given its logits [vocab] and all tokens before it.

        Logits past the vocabulary (a table padded to a round size) are not looked at.
        """
        logits = logits[: len(self._all)]
        if self._greedy:
            return self._best(logits, position)
        if len(self._biased):
            logits = logits.copy()
            logits[self._biased] += self._bias
        _check(logits.max(), position)
        place = chain.Place(history, position, self.seed)
        with np.errstate(over="ignore"):  # a penalty may be large enough to forbid a token
            candidates = self.candidates(logits, place)
        return self._draw(candidates, place)

    def _best(self, logits: NDArray[np.float32], position: int) -> int:
        """The first of the largest; biases are lent to the logits, a copy would cost more."""
        lent = logits[self._biased]
        logits[self._biased] = lent + self._bias
        best = int(logits.argmax())
        peak = logits[best]
        logits[self._biased] = lent
        _check(peak, position)
        return best

    def candidates(self, logits: Reals, place: chain.Place) -> Candidates:
        """What the chain leaves to draw from, before any bias."""
        left = Candidates(self._all, logits)
        for link in self._links:
            left = link(left, place)
        if self._options.mirostat == 1:
            return mirostat.version_1(left, self.mu, len(logits))
        if self._options.mirostat == 2:
            return mirostat.version_2(left, self.mu)
        return left

    def _draw(self, candidates: Candidates, place: chain.Place) -> int:
        """Where chance enters: the candidate at a random height of the summed probabilities."""
        peak = candidates.logits.max()
        _check(peak, place.position)
        heights = np.cumsum(np.exp(candidates.logits.astype(np.float64) - peak))
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
