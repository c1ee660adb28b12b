"""Layers by kind, and the numbers that a token is computed with, as the names of tensors tell."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from turbodflash_engine.gguf import TensorInfo
from turbodflash_engine.metadata import Metadata

Mixer = Literal["attention", "recurrent", "none"]

_IN_LAYER = re.compile(r"blk\.(\d+)\.(.+)")
_ATTENTION, _RECURRENT, _MTP = ("attn_q", "attn_k", "attn_output"), "ssm_", "nextn."
_FFN = ("ffn_up.", "ffn_down.")
_EXPERTS, _SHARED = "_exps.", "_shexp."
_PATTERN = "attention.sliding_window_pattern"


class _Make(NamedTuple):
    mixer: Mixer
    window: int
    dense: bool
    experts: int
    used: int
    shared: bool
    mtp: bool


@dataclass(frozen=True, slots=True)
class LayerSummary:
    """Layers of one make.

    mixer: how they look at other tokens. window: positions that attention sees; 0 = all of them.
    dense: they have a feed-forward part. experts, used: they have so many, of which a token takes
    `used`. shared: beside these there is one that all tokens take.
    mtp: they guess further tokens, and are no part of the model proper.
    layers: their numbers. parameters, active: numbers in their tensors, and those that a token is
    computed with. nbytes: of the tensors.
    """

    mixer: Mixer
    window: int
    dense: bool
    experts: int
    used: int
    shared: bool
    mtp: bool
    layers: tuple[int, ...]
    parameters: int
    active: int
    nbytes: int


def layers_of(
    tensors: Mapping[str, TensorInfo], meta: Metadata, windows: Mapping[int, int]
) -> tuple[LayerSummary, ...]:
    """One for each make, in the order of their first layers.

    windows: of layers, as far as they are known; of others the file's own pattern is asked.
    """
    inside = _by_layer(tensors.values())
    keys = _Keys(meta)
    makes: dict[_Make, list[int]] = {}
    for layer, found in inside.items():
        window = windows[layer] if layer in windows else _window(keys, layer)
        makes.setdefault(_make(found, keys, layer, window), []).append(layer)
    return tuple(
        _summary(make, layers, [pair for layer in layers for pair in inside[layer].items()])
        for make, layers in makes.items()
    )


def active_parameters(tensors: Mapping[str, TensorInfo], layers: Iterable[LayerSummary]) -> int:
    """Numbers that a token of the model proper is computed with.

    Of experts those it takes; of tables of tokens a row, unless they serve as the head too.
    """
    looked_up = {"per_layer_token_embd.weight"}
    if "output.weight" in tensors:
        looked_up.add("token_embd.weight")
    outside = sum(
        tensor.shape[0] if name in looked_up else tensor.elements
        for name, tensor in tensors.items()
        if not _IN_LAYER.fullmatch(name)
    )
    return outside + sum(each.active for each in layers if not each.mtp)


def _by_layer(tensors: Iterable[TensorInfo]) -> dict[int, dict[str, TensorInfo]]:
    """Tensors of each layer, in order, under what follows `blk.N.` in their names."""
    found: dict[int, dict[str, TensorInfo]] = {}
    for tensor in tensors:
        if match := _IN_LAYER.fullmatch(tensor.name):
            found.setdefault(int(match[1]), {})[match[2]] = tensor
    return dict(sorted(found.items()))


def _make(found: Mapping[str, TensorInfo], keys: _Keys, layer: int, window: int) -> _Make:
    experts = next((t.shape[-1] for name, t in found.items() if _EXPERTS in name), 0)
    mixer = _mixer(found)
    return _Make(
        mixer=mixer,
        window=window if mixer == "attention" else 0,
        dense=any(name.startswith(_FFN) for name in found),
        experts=experts,
        used=min(keys.of_layer("expert_used_count", layer), experts),
        shared=any(_SHARED in name for name in found),
        mtp=any(name.startswith(_MTP) for name in found),
    )


def _mixer(names: Iterable[str]) -> Mixer:
    if any(name.startswith(_RECURRENT) for name in names):
        return "recurrent"
    return "attention" if any(name.startswith(_ATTENTION) for name in names) else "none"


def _window(keys: _Keys, layer: int) -> int:
    slides = keys.is_list(_PATTERN) and keys.of_layer(_PATTERN, layer)
    return keys.of_layer("attention.sliding_window", layer) if slides else 0


class _Keys:
    """The keys of a file's architecture, looked at without being asked for."""

    def __init__(self, meta: Metadata) -> None:
        prefix = f"{meta.get('general.architecture', '')}."
        self._values = {
            key.removeprefix(prefix): value for key, value in meta.items() if key.startswith(prefix)
        }

    def is_list(self, key: str) -> bool:
        return isinstance(self._values.get(key), np.ndarray)

    def of_layer(self, key: str, layer: int) -> int:
        """A number that stands for all layers, or for each; 0 if there is none."""
        found = self._values.get(key)
        if isinstance(found, np.ndarray):
            found = found[layer].item() if layer < len(found) else 0
        return found if isinstance(found, int) else 0


def _summary(
    make: _Make, layers: Sequence[int], tensors: Sequence[tuple[str, TensorInfo]]
) -> LayerSummary:
    return LayerSummary(
        *make,
        layers=tuple(layers),
        parameters=sum(tensor.elements for _, tensor in tensors),
        active=sum(
            tensor.elements * make.used // make.experts if _EXPERTS in name else tensor.elements
            for name, tensor in tensors
        ),
        nbytes=sum(tensor.nbytes for _, tensor in tensors),
    )
