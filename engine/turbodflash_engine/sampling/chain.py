"""The chain: the steps that are on, in the order asked for. The order is the meaning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from turbodflash_engine.options import SampleOptions
from turbodflash_engine.sampling import steps
from turbodflash_engine.sampling.candidates import Candidates
from turbodflash_engine.sampling.dry import Breakers, discourage_repeats
from turbodflash_engine.sampling.noise import Stream, uniform
from turbodflash_engine.sampling.penalties import penalise, window


class Place(NamedTuple):
    """Where a token is being chosen: before it the `history`, at `position`, under a seed."""

    history: Sequence[int]
    position: int
    seed: int


Link = Callable[[Candidates, Place], Candidates]


def active(options: SampleOptions) -> tuple[str, ...]:
    """Names of the steps that can change something, in the order asked for."""
    return tuple(name for name in options.samplers if _ON[name](options))


def chain(options: SampleOptions, breakers: Breakers) -> tuple[Link, ...]:
    """One link for each active step. `breakers` is used by DRY only."""
    builders = {"dry": lambda asked: _dry(asked, breakers)} | _BUILDERS
    return tuple(builders[name](options) for name in active(options))


def keeps_only_the_best(options: SampleOptions) -> bool:
    """Whether what is chosen is the largest logit, whatever the seed and the history."""
    if options.mirostat:
        return options.temp <= 0 and options.dynatemp_range <= 0
    names = active(options)
    cold = "temperature" in names and options.temp <= 0 and options.dynatemp_range <= 0
    single = "top_k" in names and options.top_k == 1
    return (cold or single) and not {"penalties", "dry", "typ_p", "xtc"} & set(names)


def _penalises(options: SampleOptions) -> bool:
    neutral = (
        options.repeat_penalty == 1
        and options.frequency_penalty == 0
        and options.presence_penalty == 0
    )
    return options.repeat_last_n != 0 and not neutral


_ON: dict[str, Callable[[SampleOptions], bool]] = {
    "penalties": _penalises,
    "dry": lambda o: o.dry_multiplier != 0 and o.dry_base >= 1 and o.dry_penalty_last_n != 0,
    "top_n_sigma": lambda o: o.top_n_sigma > 0,
    "top_k": lambda o: o.top_k > 0,
    "typ_p": lambda o: o.typical_p < 1,
    "top_p": lambda o: o.top_p < 1,
    "min_p": lambda o: o.min_p > 0,
    "xtc": lambda o: o.xtc_probability > 0 and o.xtc_threshold <= steps.XTC_MAX_THRESHOLD,
    "temperature": lambda o: o.temp != 1 or o.dynatemp_range > 0,
}


def _penalties(options: SampleOptions) -> Link:
    return lambda candidates, place: penalise(
        candidates,
        window(place.history, options.repeat_last_n),
        repeat=options.repeat_penalty,
        frequency=options.frequency_penalty,
        presence=options.presence_penalty,
    )


def _dry(options: SampleOptions, breakers: Breakers) -> Link:
    return lambda candidates, place: discourage_repeats(
        candidates,
        window(place.history, options.dry_penalty_last_n),
        breakers,
        multiplier=options.dry_multiplier,
        base=options.dry_base,
        allowed_length=options.dry_allowed_length,
    )


def _xtc(options: SampleOptions) -> Link:
    return lambda candidates, place: steps.xtc(
        candidates,
        options.xtc_probability,
        options.xtc_threshold,
        uniform(place.seed, place.position, Stream.XTC),
    )


def temperature(options: SampleOptions) -> Link:
    """The link that mirostat keeps."""
    return lambda candidates, _: steps.temperature(
        candidates, options.temp, options.dynatemp_range, options.dynatemp_exp
    )


_BUILDERS: dict[str, Callable[[SampleOptions], Link]] = {
    "penalties": _penalties,
    "top_n_sigma": lambda o: lambda candidates, _: steps.top_n_sigma(candidates, o.top_n_sigma),
    "top_k": lambda o: lambda candidates, _: steps.top_k(candidates, o.top_k),
    "typ_p": lambda o: lambda candidates, _: steps.typical(candidates, o.typical_p),
    "top_p": lambda o: lambda candidates, _: steps.top_p(candidates, o.top_p),
    "min_p": lambda o: lambda candidates, _: steps.min_p(candidates, o.min_p),
    "xtc": _xtc,
    "temperature": temperature,
}
