"""What a person may ask for. Checked at the door: an options object that exists is valid.

Everything here is plain data, so that a command line can be parsed without loading an engine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from turbodflash_engine.errors import BadUsage, Unknown

SAMPLERS = (
    "penalties",
    "dry",
    "top_n_sigma",
    "top_k",
    "typ_p",
    "top_p",
    "min_p",
    "xtc",
    "temperature",
)
"""Every step a chain may name, in the default order."""

SAMPLER_LETTERS = dict(zip("edskypmxt", SAMPLERS, strict=True))
"""The one-letter spelling of the steps."""

_SAMPLER_ALIASES = {
    "nucleus": "top_p",
    "temp": "temperature",
    "typ": "typ_p",
    "typical": "typ_p",
    "typical_p": "typ_p",
    "typicalp": "typ_p",
} | {name.replace("_", ""): name for name in SAMPLERS}

CACHE_TYPES = (
    *("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"),
    *("turbo4", "turbo3", "turbo2"),
)
"""What keys and values can be stored in, from the most exact on."""

KV_ROTATIONS = ("auto", "on", "off")
KV_PROTECTIONS = ("none", "auto", "boundary")

DEVICES = ("auto", "cpu", "gpu", "reference")
"""Kinds of devices; of several cards, "gpu:1" is the second. auto: a card where there is one."""

EVERY_LAYER = 1 << 20
"""More layers than a model has: all of it, its embedding included."""

ROPE_SCALINGS = ("none", "linear", "yarn", "longrope")
RANDOM_SEED = 2**32 - 1
"""The unsigned spelling of seed -1: choose one at random."""


SPEC_TYPES = (
    "ngram-simple",
    "ngram-map-k",
    "ngram-map-k4v",
    "ngram-mod",
    "ngram-cache",
    "draft-simple",
    "draft-eagle3",
    "draft-mtp",
    "draft-dflash",
    "draft-dspark",
)
"""Every type of drafter; of several, the first in this order that has a guess is followed."""

INJECTIONS = ("auto", "deferred", "immediate")

MOST_TREE = 31
"""Nodes of a tree that a device verifies at once, beside its root."""


@dataclass(frozen=True, slots=True)
class NgramOptions:
    """size_n: tokens that must match. size_m: the most proposed. min_hits: matches asked for."""

    size_n: int = 12
    size_m: int = 48
    min_hits: int = 1

    def __post_init__(self) -> None:
        for each in fields(self):
            _at_least(each.name, getattr(self, each.name), 1)


@dataclass(frozen=True, slots=True)
class NgramModOptions:
    """n_match: tokens that a guess is hashed from. n_min, n_max: how many are proposed."""

    n_match: int = 24
    n_min: int = 48
    n_max: int = 64

    def __post_init__(self) -> None:
        for each in fields(self):
            _at_least(each.name, getattr(self, each.name), 1)
        if self.n_min > self.n_max:
            raise BadUsage(f"n_min is {self.n_min}, more than n_max, {self.n_max}")


@dataclass(frozen=True, slots=True)
class SpecOptions:
    """How tokens are drafted.

    model: the draft's file. types: of SPEC_TYPES; empty = what the file is.
    n_max, n_min: the most tokens drafted in a step (None = as trained, 16 where nothing was), and
        the fewest that are worth verifying. p_min: a drafter stops where it is less sure.
    context: positions of the draft's cache; 0 = as the model's.
    threads, threads_batch: of the draft's passes; 0 = as the model's.
    device: auto = where the model's head is. gpu_layers: a draft is on one device: 0 = the CPU, any
        other number = a card; None = as the device says.
    width: tokens verified in a step; None = what pays at the moment, down to none.
    fallback: where a draft from a file does not pay, guess from n-grams of the text, unless `types`
        has any; with a width of None alone.
    tree: nodes verified in a step, up to MOST_TREE; 0 = a chain.
    inject: when accepted tokens reach the draft's cache; it changes the speed only.
    synth_rates: instead of comparing, accept the i-th draft with this probability once those before
        it were; the text is then not real.
    """

    model: Path | None = None
    types: tuple[str, ...] = ()
    n_max: int | None = None
    n_min: int = 0
    p_min: float = 0.0
    context: int = 0
    threads: int = 0
    threads_batch: int = 0
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    device: str = "auto"
    gpu_layers: int | None = None
    width: int | None = None
    fallback: bool = True
    tree: int = 0
    inject: str = "auto"
    synth_rates: tuple[float, ...] = ()
    ngram_simple: NgramOptions = field(default_factory=NgramOptions)
    ngram_map_k: NgramOptions = field(default_factory=NgramOptions)
    ngram_map_k4v: NgramOptions = field(default_factory=NgramOptions)
    ngram_mod: NgramModOptions = field(default_factory=NgramModOptions)

    def __post_init__(self) -> None:
        for name in ("n_max", "n_min", "context", "threads", "threads_batch", "width", "tree"):
            _at_least(name, getattr(self, name), 0)
        _probability("p_min", self.p_min)
        for rate in self.synth_rates:
            _probability("a rate of synthetic acceptance", rate)
        _cache_types(self.cache_type_k, self.cache_type_v)
        _one_of("inject", self.inject, INJECTIONS)
        _check_device("the draft's device", self.device, self.gpu_layers)
        for kind in self.types:
            _one_of("the type of drafting", kind, SPEC_TYPES)
        if self.tree > MOST_TREE:
            raise BadUsage(
                f"a tree of {self.tree} nodes is over the {MOST_TREE} that are verified at once",
                hint="ask for a smaller tree",
            )
        if self.tree and self.synth_rates:
            raise BadUsage(
                f"a tree of {self.tree} nodes cannot be accepted at random",
                hint="leave out the tree or the synthetic acceptance",
            )
        if self.n_max is not None and self.n_min > self.n_max:
            raise BadUsage(
                f"n_min is {self.n_min}, more than n_max, {self.n_max}; "
                "every draft would be thrown away",
                hint="lower the one or raise the other",
            )


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How a model is opened.

    context: positions the cache holds; 0 = the trained length.
    threads, threads_batch: for decoding and for prompts; 0 = all usable cores, and as `threads`.
    cache_type_k, cache_type_v: of CACHE_TYPES.
    kv_rotate: whether plain quantised keys and values are stored rotated, so that large channels
        share their error out; auto = where heads allow it.
    kv_protect: rules that keep some keys or values in a better type (see cache.protection); with
        kv_rotate, of the draft's cache as well.
    batch, ubatch: a prompt is computed in passes of the smaller of the two, in tokens.
    device: where layers go; those that do not are on the CPU.
    gpu_layers: how many go there, from the end, the head counted first, so that one more than there
        are takes the embedding along; None = as many as fit.
    graphs: a card runs passes as graphs, which are launched as one.
    chat_template: Jinja text or the name of a built-in template; None = the file's own.
    spec: how tokens are drafted; None = plain decoding.
    swa_full: layers that look through a window remember all positions: a prompt that changes far
        back is then read from there on only. So they do where the context shifts.
    fit: a context of 0 is cut to what fits into memory; False = it is refused.
    context_shift: when the context is full, half of it is dropped, instead of ending the answer;
        so it is with a prompt that does not fit.
    keep: tokens of a prompt that are never dropped, beside what every prompt begins with; -1 = all
        of the first prompt. Three quarters of the context at most.
    """

    model: Path
    context: int = 0
    threads: int = 0
    threads_batch: int = 0
    batch: int = 2048
    ubatch: int = 512
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    kv_rotate: str = "auto"
    kv_protect: str = "none"
    device: str = "auto"
    gpu_layers: int | None = None
    graphs: bool = True
    rope_scaling: str | None = None
    rope_scale: float | None = None
    rope_freq_base: float | None = None
    rope_freq_scale: float | None = None
    yarn_orig_ctx: int | None = None
    chat_template: str | None = None
    warmup: bool = True
    spec: SpecOptions | None = None
    fit: bool = True
    swa_full: bool = False
    context_shift: bool = False
    keep: int = 0

    @property
    def whole_windows(self) -> bool:
        """Whether layers that look through a window remember all positions."""
        return self.swa_full or self.context_shift

    def __post_init__(self) -> None:
        _at_least("keep", self.keep, -1)
        for name in ("context", "threads", "threads_batch"):
            _at_least(name, getattr(self, name), 0)
        for name in ("batch", "ubatch", "yarn_orig_ctx"):
            _at_least(name, getattr(self, name), 1)
        for name in ("rope_scale", "rope_freq_base", "rope_freq_scale"):
            _above_zero(name, getattr(self, name))
        _cache_types(self.cache_type_k, self.cache_type_v)
        _one_of("kv_rotate", self.kv_rotate, KV_ROTATIONS)
        _one_of("kv_protect", self.kv_protect, KV_PROTECTIONS)
        _check_device("the device", self.device, self.gpu_layers)
        if self.rope_scaling is not None:
            _one_of("rope_scaling", self.rope_scaling, ROPE_SCALINGS)


@dataclass(frozen=True, slots=True)
class SampleOptions:
    """How the next token is chosen from its logits.

    seed: -1 = one at random, resolved once per answer and reported in `Started`.
    samplers: steps in the order they run; aliases are stored under their own name.
    repeat_last_n, dry_penalty_last_n: window in tokens, the prompt's included; 0 = off,
        -1 = everything the context holds.
    mirostat: 0 = off; 1 or 2 replace the chain.
    logit_bias: (token id, added to its logit).
    """

    seed: int = -1
    samplers: tuple[str, ...] = SAMPLERS
    temp: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    typical_p: float = 1.0
    top_n_sigma: float = -1.0
    repeat_penalty: float = 1.0
    repeat_last_n: int = 64
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = 64
    dry_sequence_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    dynatemp_range: float = 0.0
    dynatemp_exp: float = 1.0
    mirostat: int = 0
    mirostat_lr: float = 0.1
    mirostat_ent: float = 5.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        _all_finite(self)
        _above_zero("repeat_penalty", self.repeat_penalty)
        for name in ("repeat_last_n", "dry_penalty_last_n"):
            _at_least(name, getattr(self, name), -1)
        _at_least("dry_allowed_length", self.dry_allowed_length, 0)
        _at_least("dynatemp_exp", self.dynatemp_exp, 0)
        if not -1 <= self.seed <= RANDOM_SEED:
            raise BadUsage(
                f"seed is {self.seed}; a seed is a whole number from 0 to {RANDOM_SEED}",
                hint="use -1 for a random one",
            )
        if self.mirostat not in (0, 1, 2):
            raise BadUsage(f"mirostat is {self.mirostat}; it is 0 (off), 1 or 2")
        _check_biases(self.logit_bias)
        object.__setattr__(self, "samplers", tuple(map(sampler_name, self.samplers)))


@dataclass(frozen=True, slots=True)
class SayOptions:
    """How one answer is given.

    max_tokens: -1 = until the end or until the context is full, if it does not shift; -2 = until it
        is full in any case; 0 = read the prompt only.
    stop: strings that end the answer and are not part of it.
    attempt: 0 = first answer; an answer asked for again draws on seed + attempt.
    thinking: asks the template to think, or not to; None = as the template does by itself.
    split_thoughts: tell thoughts from the answer; False = they and their marks are its text.
    thought_budget: tokens of thought, then they are ended; -1 = as many as the model takes.
    budget_message: what is said before the mark that ends them then.
    template_kwargs: further variables of the template.
    special: show the text of control tokens.
    """

    max_tokens: int = -1
    stop: tuple[str, ...] = ()
    sample: SampleOptions = field(default_factory=SampleOptions)
    attempt: int = 0
    thinking: bool | None = None
    split_thoughts: bool = True
    thought_budget: int = -1
    budget_message: str = ""
    template_kwargs: Mapping[str, object] = field(default_factory=dict)
    special: bool = False

    def __post_init__(self) -> None:
        _at_least("max_tokens", self.max_tokens, -2)
        _at_least("attempt", self.attempt, 0)
        _at_least("thought_budget", self.thought_budget, -1)
        if "" in self.stop:
            raise BadUsage(
                "a stop string is empty; it would end every answer before it begins",
                hint="give the text that ends an answer, or leave it out",
            )


def sampler_name(name: str) -> str:
    """The own name of a sampler given by any spelling: `top-k`, `topk`, `nucleus`, `temp`."""
    spelled = name.strip().lower().replace("-", "_")
    found = spelled if spelled in SAMPLERS else _SAMPLER_ALIASES.get(spelled)
    if found is None:
        raise Unknown("sampler", name, SAMPLERS)
    return found


def _cache_types(*names: str) -> None:
    for name in names:
        if name not in CACHE_TYPES:
            raise Unknown("cache type", name, CACHE_TYPES)


def _at_least(name: str, value: float | None, floor: int) -> None:
    if value is not None and value < floor:
        raise BadUsage(f"{name} is {value}; it must be at least {floor}")


def _above_zero(name: str, value: float | None) -> None:
    if value is not None and not (math.isfinite(value) and value > 0):
        raise BadUsage(f"{name} is {value}; it must be a finite number above 0")


def _probability(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise BadUsage(f"{name} is {value}; it must lie between 0 and 1")


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise BadUsage(f"{name} is {value!r}; it must be one of: {', '.join(known)}")


def _check_device(what: str, device: str, gpu_layers: int | None) -> None:
    kind, numbered, index = device.partition(":")
    if kind not in DEVICES or (numbered and not (kind == "gpu" and index.isdecimal())):
        raise BadUsage(
            f"{what} is {device!r}; it must be one of: {', '.join(DEVICES)}",
            hint="of several cards, gpu:1 is the second",
        )
    _at_least("gpu_layers", gpu_layers, 0)
    if device == "cpu" and gpu_layers:
        raise BadUsage(
            f"{gpu_layers if gpu_layers < EVERY_LAYER else 'all'} layers are asked for on a card, "
            f"but {what} is the CPU",
            hint="leave out the one or the other",
        )


def _all_finite(options: SampleOptions) -> None:
    for each in fields(options):
        value = getattr(options, each.name)
        if isinstance(value, float) and not math.isfinite(value):
            raise BadUsage(f"{each.name} is {value}; it must be a finite number")


def _check_biases(biases: tuple[tuple[int, float], ...]) -> None:
    for token, bias in biases:
        if token < 0 or math.isnan(bias) or bias == math.inf:
            raise BadUsage(
                f"the logit bias of token {token} is {bias}; "
                "it must be a number, and the token an id of at least 0"
            )
