"""draft-simple: a smaller language model of the same vocabulary says what it would say."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple

from turbodflash_engine import plugins
from turbodflash_engine.cache import KVShape
from turbodflash_engine.cache.pieces import Arrays, Pieces
from turbodflash_engine.drafters._base import (
    NO_DRAFT,
    Draft,
    Drafter,
    FileKind,
    Rows,
    Setting,
    threads_of,
)
from turbodflash_engine.drafters._chain import UNTRAINED, Chain, Floats, Ids
from turbodflash_engine.drafters._guesses import looked_at
from turbodflash_engine.errors import BadModel
from turbodflash_engine.layers.rope import RopeOverrides
from turbodflash_engine.layers.tensors import Layout, Tensors
from turbodflash_engine.metadata import Metadata
from turbodflash_engine.models._base import Architecture, Config, Form, Model, Output, Shared
from turbodflash_engine.models._placement import Placement
from turbodflash_engine.options import SpecOptions

PADDING = 128
"""Tokens by which the vocabularies of one family differ: unused ones at the end."""

PROMPT_ROWS = 32
"""So many tokens at once are read when they come; fewer wait for the next draft, which may not come
at all."""
PASS_ROWS = 512


class DraftModelConfig(NamedTuple):
    """model: the configuration as its architecture reads it."""

    source: str
    architecture: str
    model: Config

    @property
    def kv_shapes(self) -> tuple[KVShape, ...]:
        return self.model.kv_shapes

    @property
    def state_bytes(self) -> Mapping[int, int]:
        return self.model.state_bytes

    @property
    def tap_values(self) -> int:
        """Numbers of the model that it taps, per row."""
        return 0

    @property
    def scratch_values(self) -> int:
        """Numbers alive at once per row of a pass."""
        return self.model.scratch_values

    @property
    def plugin(self) -> Architecture:
        found: Architecture = plugins.find("models", self.architecture)
        return found


class DraftModel:
    """Continues the text greedily, with a model and a cache of its own.

    A guess that comes true is in that cache already and is not read again, if the cache could have
    been cut back had it been wrong.
    """

    name = "draft-simple"
    taps: tuple[int, ...] = ()

    def __init__(
        self, model: Model, target: Shared, options: SpecOptions, weight_bytes: int = 0
    ) -> None:
        self.longest = UNTRAINED if options.n_max is None else options.n_max
        self._model, self._options, self._weight_bytes = model, options, weight_bytes
        self._vocabulary = min(model.vocabulary, target.vocabulary)
        self._looked_at = looked_at(options, self._vocabulary)
        self._text: list[int] = []  # what was observed; the cache may lack the end of it
        self._ahead: list[int] = []  # what the cache holds after it

    @property
    def nbytes(self) -> int:
        return self._weight_bytes + self._model.cache.nbytes

    def draft(self, history: Sequence[int], width: int) -> Draft:
        self._forget_ahead()
        cache = self._model.cache
        room = min(cache.capacity - len(self._text), cache.widest - PROMPT_ROWS)
        width = min(width, self.longest, room)
        if width < 1:
            return NO_DRAFT
        if len(self._behind) > PROMPT_ROWS:
            self._catch_up()
        chain = Chain(self._options.p_min)
        behind = self._behind
        run = [*behind, self._known(history[-1])]
        read: list[int] = []
        with cache.trial() as trial:
            while run:
                output = self._model(run)
                read += run
                token = chain.add(*self._best(output))
                run = [] if token is None or len(chain) == width else [token]
            certain = len(self._text) + 1
            kept = len(read) if cache.reach(certain) == certain else len(behind) + 1
            trial.keep(kept)
        self._ahead = read[len(behind) : kept]
        return chain.draft()

    def observe(
        self, tokens: Sequence[int], positions: range, taps: Sequence[Rows], coming: int = 0
    ) -> None:
        for token in map(self._known, tokens):
            if self._ahead[:1] == [token]:
                del self._ahead[0]
            else:
                self._forget_ahead()
            self._text.append(token)
        if len(tokens) >= PROMPT_ROWS:
            self._catch_up()

    def truncate(self, length: int) -> None:
        if length >= len(self._text):
            return
        self._ahead = []
        del self._text[length:]
        self._cut()

    def forget(self, start: int, stop: int) -> None:
        self._forget_ahead()
        cached = self._model.cache.length
        self._model.cache.forget(min(start, cached), min(stop, cached))
        del self._text[start:stop]

    @property
    def form(self) -> str:
        return self._model.cache.form

    def pieces(self) -> Pieces:
        self._forget_ahead()
        self._catch_up()
        return self._model.cache.pieces()

    def resume(self, tokens: Sequence[int], saved: Arrays) -> None:
        cache = self._model.cache
        cached = min(len(tokens), cache.capacity)
        cache.fill(saved, cached)
        self._ahead, self._text = [], [self._known(token) for token in tokens]

    def _best(self, output: Output) -> tuple[Floats, Ids]:
        """The largest of the only row's logits, and their ids; they outlive the next pass."""
        found = output.largest(self._looked_at, self._vocabulary)
        return found.values[0].copy(), found.ids[0].copy()

    @property
    def _behind(self) -> list[int]:
        """The end of the observed text, which the cache lacks."""
        return self._text[self._model.cache.length :]

    def _forget_ahead(self) -> None:
        if self._ahead:
            self._ahead = []
            self._cut()

    def _cut(self) -> None:
        """The cache holds nothing but a beginning of the text, as long as it can be cut back to."""
        cache = self._model.cache
        cache.truncate(cache.reach(len(self._text)))

    def _catch_up(self) -> None:
        """Read what was observed, as far as there is room for it."""
        cache = self._model.cache
        while rows := min(len(self._behind), cache.capacity - cache.length, PASS_ROWS):
            self._model(self._behind[:rows], logits=0)

    def _known(self, token: int) -> int:
        """The token, or the last one that the model has for one that it lacks."""
        return min(token, self._model.vocabulary - 1)


def claims(metadata: Metadata, names: Container[str]) -> bool:
    """Any model on the shelf; not one that is a head of another model only."""
    if metadata.architecture not in plugins.names("models"):
        return False
    layers = metadata.for_architecture().get("block_count", 0)
    return "blk.0.attn_norm.weight" in names or (
        f"blk.{layers - 1}.nextn.eh_proj.weight" not in names
    )


def read(metadata: Metadata) -> DraftModelConfig:
    name = metadata.architecture
    architecture: Architecture = plugins.find("models", name)
    return DraftModelConfig(metadata.source, name, architecture.read(metadata, RopeOverrides()))


def check(config: DraftModelConfig, target: Form, options: SpecOptions) -> None:
    own = config.model.vocabulary
    if abs(own - target.vocabulary) > PADDING:
        raise BadModel(
            f"'{config.source}' has {own:,} tokens and the model {target.vocabulary:,}; "
            f"vocabularies that fit differ by {PADDING} at most",
            hint="use a draft of the model's own family",
        )


def layout(config: DraftModelConfig, present: Container[str]) -> Layout:
    return config.plugin.layout(config.model, present)


def build(config: DraftModelConfig, tensors: Tensors, setting: Setting) -> Drafter:
    device, options = setting.device, setting.options
    placement = Placement.on(device, config.model.layers)
    model = config.plugin.build(config.model, tensors, placement, setting.plan, threads_of(options))
    weight_bytes = tensors.weight_bytes(device.bytes_per_weight)
    return DraftModel(model, setting.target, options, weight_bytes)


PLUGIN = FileKind(claims, read, check, layout, build, whole=True)
