"""Drafts of blocks that differ from a recorded one in their metadata or tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tests.engine.spec_runs import draft_for, runs
from tests.engine.tiny_models import Made, tensors_of
from turbodflash_engine.drafters._block.drafter import BlockDrafter
from turbodflash_engine.layers.tensors import Info
from turbodflash_engine.metadata import Metadata
from turbodflash_engine.models._base import CachePlan, Model
from turbodflash_engine.options import SpecOptions
from turbodflash_kernels.device import Device

V1, SLIDING, V2 = "dflash--qwen3", "dflash-swa-d2t--qwen3", "dflash2--qwen3"
SPARK, BONUS = "dspark--qwen3", "dspark-bonus--qwen3"
PAIRS = (V1, SLIDING, V2, SPARK, BONUS)
TEXT: list[int] = runs(V1)[3]["prompt"]  # 140 tokens

File = tuple[Metadata, Mapping[str, Info]]


def values_of(pair: str, name: str) -> NDArray[np.float32]:
    """A tensor of a file as its rows."""
    info = tensors_of(pair)[1][name]
    return info.data.view("<f4").reshape(info.shape[::-1])


def ids(name: str, values: Sequence[int]) -> Made:
    """A tensor of whole numbers."""
    rows = np.asarray(values, np.int64)
    return Made(name, "I64", rows.shape, rows[None].view(np.uint8))


def variant(
    pair: str,
    keys: Mapping[str, object] | None = None,
    tensors: Sequence[Made] = (),
    *,
    without: Sequence[str] = (),
    renamed: Mapping[str, str] | None = None,
) -> File:
    """A recorded draft with other keys and tensors. renamed: of both; a key may be a prefix."""
    metadata, infos = tensors_of(pair)
    values = dict(metadata.items()) | dict(keys or {})
    held = dict(infos) | {info.name: info for info in tensors}
    for name in without:
        values.pop(name, None)
        held.pop(name, None)
    for old, new in (renamed or {}).items():
        values = {_renamed(key, old, new): value for key, value in values.items()}
        held = {_renamed(name, old, new): info for name, info in held.items()}
    return Metadata(values, "some.gguf"), held


def _renamed(name: str, old: str, new: str) -> str:
    return new + name[len(old) :] if name.startswith(old) else name


def built(
    file: File | str,
    model: Model,
    device: Device,
    plan: CachePlan | None = None,
    **options: Any,
) -> BlockDrafter:
    """A drafter for the model, from a file or as recorded."""
    file = tensors_of(file) if isinstance(file, str) else file
    drafter = draft_for(model, device, file, SpecOptions(**options), plan)
    assert isinstance(drafter, BlockDrafter)
    return drafter


class Call(NamedTuple):
    inputs: tuple[Any, ...]
    result: Any


def spied(owner: Any, name: str) -> list[Call]:
    """The calls of a method from now on, in a list that grows."""
    calls: list[Call] = []
    method = getattr(owner, name)

    def spy(*inputs: Any) -> Any:
        calls.append(Call(inputs, method(*inputs)))
        return calls[-1].result

    setattr(owner, name, spy)
    return calls


class Logits:
    """What drafts are chosen from, as recordings hold it.

    Make it before anything is drafted: a captured step is not called again.
    """

    def __init__(self, drafter: BlockDrafter, device: Device) -> None:
        self._drafter, self._device = drafter, device
        markov = getattr(drafter, "_markov", None)
        self._calls = spied(markov, "biased") if markov else spied(drafter, "_hidden")
        self._of = (lambda found: found) if markov else drafter._head.logits

    def __call__(self, text: Sequence[int]) -> NDArray[np.float32]:
        """Draft after a text: f32[rows, 512], -inf where the draft has no such token."""
        self._drafter.draft(text, self._drafter.longest)
        count = 1 if len(self._calls[-1].result) > 1 else self._drafter.longest
        rows = [self._device.read(self._of(call.result)) for call in self._calls[-count:]]
        numbers = np.concatenate(rows)
        scattered = np.full((len(numbers), 512), -np.inf, np.float32)
        tokens = self._drafter._words.tokens(np.arange(numbers.shape[1], dtype=np.int32))
        scattered[:, tokens] = numbers
        return scattered
