"""Recorded speculative runs: a draft and its target as they were, and how they are run again."""

from __future__ import annotations

import json
import lzma
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tests.engine.tiny_models import tensors_of
from tests.golden_files import GOLDEN
from turbodflash_engine import plugins
from turbodflash_engine.drafters._base import Drafter, FileKind, Setting
from turbodflash_engine.layers.tensors import Info, Tensors
from turbodflash_engine.metadata import Metadata
from turbodflash_engine.models._base import CachePlan, Model
from turbodflash_engine.options import SpecOptions
from turbodflash_engine.quant import weight_type
from turbodflash_kernels.device import Device


class Step(NamedTuple):
    """at: position of the last token, which is not in the cache."""

    at: int
    draft: tuple[int, ...]
    accepted: int


@cache
def runs(pair: str) -> list[dict[str, Any]]:
    """The runs of a pair, such as "eagle3--qwen3"."""
    packed = (GOLDEN / "spec" / f"{pair}.json.xz").read_bytes()
    found: list[dict[str, Any]] = json.loads(lzma.decompress(packed))["runs"]
    return found


@cache
def recorded(pair: str) -> Mapping[str, NDArray[np.float32]]:
    """What the draft calls of a pair gave, by prompt, n_max and number of the call."""
    with np.load(GOLDEN / "spec" / f"{pair}.npz") as arrays:
        return dict(arrays)


def draft_for(
    model: Model,
    device: Device,
    file: tuple[Metadata, Mapping[str, Info]],
    options: SpecOptions | None = None,
    plan: CachePlan | None = None,
) -> Drafter:
    """What loading does with a draft's file."""
    metadata, infos = file
    tensors = Tensors(infos, metadata.source, lambda info: weight_type(info.type, info.name))
    shelf: list[FileKind] = [
        kind
        for name in plugins.names("drafters")
        if isinstance(kind := plugins.find("drafters", name), FileKind)
    ]
    [kind] = [kind for kind in shelf if kind.claims(metadata, tensors)]
    options = options or SpecOptions()
    config = kind.read(metadata)
    kind.check(config, model.shared, options)
    tensors.check(kind.layout(config, tensors))
    setting = Setting(device, model.shared, plan or CachePlan(256, "f32", "f32"), options)
    return kind.build(config, tensors, setting)


def tiny_draft(
    pair: str,
    model: Model,
    device: Device,
    options: SpecOptions | None = None,
    plan: CachePlan | None = None,
) -> Drafter:
    return draft_for(model, device, tensors_of(pair), options, plan)


def read_prompt(model: Model, drafter: Drafter, prompt: Sequence[int], chunk: int = 512) -> None:
    """All but the last token, which is the first to be drafted from."""
    prompt = prompt[:-1]
    for start in range(0, len(prompt), chunk):
        part = prompt[start : start + chunk]
        output = model(part, logits=0, taps=drafter.taps)
        positions = range(start, start + len(part))
        drafter.observe(part, positions, output.taps, coming=len(prompt) - positions.stop)


def take_step(model: Model, drafter: Drafter, text: list[int], width: int) -> Step:
    """Draft, verify, keep, observe; greedy. The text grows by what was accepted and one more."""
    at = model.cache.length
    guess = list(drafter.draft(text, width).tokens)
    run = [text[-1], *guess]
    with model.cache.trial() as trial:
        output = model(run, logits=len(run), taps=drafter.taps)
        best = output.logits.argmax(axis=1).tolist()
        pairs = enumerate(zip(guess, best, strict=False))
        kept = 1 + next((index for index, (a, b) in pairs if a != b), len(guess))
        trial.keep(kept)
        drafter.observe(run[:kept], range(at, at + kept), [tap[:kept] for tap in output.taps])
    text += best[:kept]
    return Step(at, tuple(guess), kept - 1)
