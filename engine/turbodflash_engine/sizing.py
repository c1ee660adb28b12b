"""What a model and its draft will take, read from their files before a weight is."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import replace
from typing import Any

from turbodflash_engine.cache import CacheTypes, KVShape
from turbodflash_engine.errors import TurbodflashError
from turbodflash_engine.info import Work
from turbodflash_engine.memory import (
    Alternative,
    LayerCache,
    Load,
    Needs,
    Piece,
    Scratch,
    pieces_of,
    rounded,
)
from turbodflash_engine.metadata import Metadata
from turbodflash_engine.models._base import LASTING, PASS_ROWS, CachePlan, Config
from turbodflash_engine.models._trunk import EMBEDDING, HEAD, softcap_of
from turbodflash_engine.opening import Files, Found
from turbodflash_engine.options import LoadOptions, SpecOptions
from turbodflash_engine.pairing import DraftFile, draft_plan
from turbodflash_kernels.device import Device

FLOAT = 4
SLACK = 1.2  # blocks of scratch come in classes of size
KEYS_APART = 128  # so many keys have one partial sum, in passes of few rows
FEW_ROWS = 16

PROGRAM = 18 << 20
"""What comes into the process while a model loads: headers, libraries, kernels, loose ends."""
TOKEN, MERGE = 270, 106
"""Bytes of a vocabulary's token and of a merge rule, as measured."""

CHEAPER_CACHES = ("q8_0", "q5_1", "turbo4", "turbo3")
"""Types of keys and values that may be proposed, the most faithful first."""


def needs_of(files: Files, options: LoadOptions, device: Device) -> Load:
    """What a model and its draft will take on a device."""
    found, draft = files
    rows, spec = min(options.batch, options.ubatch), options.spec or SpecOptions()
    model = model_needs(
        found.config,
        found.tensors.packed_bytes(device.bytes_per_weight),
        found.file.metadata,
        plan=cache_plan(options, 0),
        rows=rows,
    )
    if draft is None:
        return Load(model)
    weights = draft.tensors.packed_bytes(device.bytes_per_weight)
    plan = draft_plan(options, 0)
    return Load(
        model, draft_needs(draft, found.config, weights, options=spec, plan=plan, rows=rows)
    )


def cache_plan(options: LoadOptions, positions: int) -> CachePlan:
    """How a model remembers so many positions."""
    rows = max(min(options.batch, options.ubatch), PASS_ROWS)  # measuring asks for no more
    types = CacheTypes.of_model(options)
    return CachePlan(positions, *types, rows=rows, whole=options.whole_windows)


def cheaper_caches(files: Files, options: LoadOptions, device: Device) -> Iterator[Alternative]:
    """The same load with smaller types of keys and values, the most faithful first."""
    least = _cache(needs_of(files, options, device))
    for name in CHEAPER_CACHES:
        try:
            other = replace(options, cache_type_k=name, cache_type_v=name)
            load = needs_of(files, other, device)
        except TurbodflashError:  # heads of a size that this type cannot store
            continue
        if _cache(load) < least:
            least = _cache(load)
            yield Alternative(f"-ctk {name} -ctv {name}", load)


def model_needs(
    config: Config,
    weights: Mapping[str, int],
    meta: Metadata,
    *,
    plan: CachePlan,
    rows: int,
) -> Needs:
    """weights: bytes of each tensor once packed. rows: of the largest pass.

    plan: how it remembers, of however many positions.
    """
    logits = FLOAT * config.vocabulary
    return Needs(
        layers=config.layers,
        pieces=pieces_of(weights, config.layers),
        caches=model_caches(config, plan),
        scratch=Scratch(
            fixed=round(SLACK * FLOAT * rows * config.scratch_values) + logits,
            per_position=FLOAT * config.partial_values / KEYS_APART,
        ),
        host=PROGRAM + tokenizer_bytes(meta),
    )


def model_caches(config: Config, plan: CachePlan) -> tuple[LayerCache, ...]:
    """One a layer, those that attend first."""
    attending = zip(layer_caches(config.kv_shapes, plan), config.kv_layers, strict=True)
    return (
        *(cache._replace(layer=layer) for cache, layer in attending),
        *recurrent_caches(config.state_bytes),
    )


def recurrent_caches(state_bytes: Mapping[int, int]) -> tuple[LayerCache, ...]:
    """One a recurrent layer."""
    return tuple(LayerCache(layer, 0.0, fixed=nbytes) for layer, nbytes in state_bytes.items())


def layer_caches(shapes: tuple[KVShape, ...], plan: CachePlan) -> tuple[LayerCache, ...]:
    """One a layer that remembers."""
    formats = plan.types.of_layers(shapes)
    return tuple(
        LayerCache(layer, format.nbytes, most=0 if plan.whole else shape.ring(plan.rows))
        for layer, (shape, format) in enumerate(zip(shapes, formats, strict=True))
    )


def draft_needs(
    draft: DraftFile,
    target: Config,
    weights: Mapping[str, int],
    *,
    options: SpecOptions,
    plan: CachePlan,
    rows: int,
) -> Needs:
    """The same of a draft; and what verifying its guesses takes of the model beside."""
    config = draft.config
    widths = FEW_ROWS if options.n_max is None else min(options.n_max + 1, FEW_ROWS)
    beside = FLOAT * (target.vocabulary * widths + LASTING * config.tap_values)
    caches = layer_caches(config.kv_shapes, plan) + recurrent_caches(config.state_bytes)
    return Needs(
        layers=0,
        borrows=draft.borrows,
        pieces=pieces_of(weights, 0) + _packed_twice(draft, weights),
        caches=tuple(cache._replace(limit=rounded(options.context)) for cache in caches),
        scratch=Scratch(
            fixed=round(SLACK * FLOAT * rows * config.scratch_values) + beside,
            per_position=FLOAT * target.partial_values * (widths - 1) / KEYS_APART,
        ),
        host=TOKEN * _length(draft.file.metadata, "tokens"),  # compared with the model's
    )


def work_of(found: Found, device: Device) -> Work:
    """What a token of this model costs on a device."""
    weights = found.tensors.packed_bytes(device.bytes_per_weight)
    numbers = {info.name: info.elements for info in found.file.tensors.values()}
    tables = {"head", "embedding"}
    has_head = HEAD in numbers
    if not softcap_of(found.file.metadata.for_architecture()):
        head = HEAD if has_head else EMBEDDING
        weights[head] = found.tensors.packed_bytes(device.bytes_searched)[head]
    return Work(
        nbytes=_of_a_token(weights, found, {"embedding"} if has_head else ()),
        macs=_of_a_token(numbers, found, tables),
    )


def _of_a_token(amounts: Mapping[str, int], found: Found, without: Container[str]) -> int:
    """Amounts by tensor, added up; of experts, the share that a token chooses."""
    meta, layers = found.file.metadata.for_architecture(), found.config.layers
    blocks, experts = meta.get("block_count", layers), meta.get("expert_count", 0)
    used = meta.get_per_layer("expert_used_count", 0, blocks)
    shares = [each / max(experts, 1) for each in used]
    return round(
        sum(
            piece.nbytes * (shares[piece.layer] if piece.kind == "experts" else 1)
            for piece in pieces_of(amounts, layers)
            if piece.kind not in without
        )
    )


def _cache(load: Load) -> float:
    """Bytes of the model's cache, per position."""
    return sum(cache.per_position for cache in load.model.caches)


def _packed_twice(draft: DraftFile, weights: Mapping[str, int]) -> tuple[Piece, ...]:
    twice = sum(size for name, size in weights.items() if name.endswith(draft.kind.twice))
    return (Piece("attention", 0, twice),) if twice else ()


def tokenizer_bytes(meta: Metadata) -> int:
    """Of the tokenizer that a file's metadata becomes."""
    return TOKEN * _length(meta, "tokens") + MERGE * _length(meta, "merges")


def _length(meta: Metadata, array: str) -> int:
    """Of an array of the tokenizer; nothing of it is decoded."""
    found: dict[str, Any] = dict(meta.root.items())
    return len(found.get(f"tokenizer.ggml.{array}", ()))
