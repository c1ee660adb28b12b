"""Rules that keep keys or values better than asked for, where less is known to spoil a text.

They hold only if asked for, count layers that attend, and say what they did.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from turbodflash_kernels.kv import kv_type

KEPT = "q8_0"
"""What keys and values are kept in that a rule protects."""
SENSITIVE_GROUP = 6
"""Keys that so many query heads share do not bear a turbo type."""
EDGE = 2
"""Layers at either end whose values matter most."""
FEWEST_LAYERS = 8
"""Of a model that has ends worth keeping apart."""


class LayerTypes(NamedTuple):
    k: str
    v: str


class Protection(NamedTuple):
    """layers: types of each layer that attends. notes: sentences that a person should read."""

    layers: tuple[LayerTypes, ...]
    notes: tuple[str, ...] = ()


def protect(k: str, v: str, mode: str, groups: Sequence[int]) -> Protection:
    """Types of every layer, from those asked for.

    mode: "none"; "auto": keys are kept where both sides are one turbo type and SENSITIVE_GROUP
        query heads or more share a key head, and the values of the layers at the ends where they
        are turbo2; "boundary": the values at the ends, of any type that KEPT is better than.
    groups: query heads that share a key head, layer by layer.
    """
    same_turbo = k == v and kv_type(k).rotation == "turbo"
    sensitive = [at for at, group in enumerate(groups) if same_turbo and group >= SENSITIVE_GROUP]
    ends = _ends(len(groups)) if _spoils_ends(v, mode) else []
    notes = []
    if sensitive and mode == "auto":
        notes.append(_kept("keys", sensitive, k, f"{groups[sensitive[0]]} query heads share each"))
    elif sensitive:
        notes.append(
            f"keys in {k} are shared by {groups[sensitive[0]]} query heads each, which spoils some "
            f"models; --kv-protect auto keeps them in {KEPT}"
        )
    if ends:
        notes.append(_kept("values", ends, v, "the first and last layers matter most"))
    elif mode == "boundary":
        notes.append(_why_not(v, len(groups)))
    keys = {at: KEPT for at in sensitive if mode == "auto"}
    values = dict.fromkeys(ends, KEPT)
    layers = (LayerTypes(keys.get(at, k), values.get(at, v)) for at in range(len(groups)))
    return Protection(tuple(layers), tuple(notes))


def _spoils_ends(v: str, mode: str) -> bool:
    if mode == "auto":
        return v == "turbo2"
    return mode == "boundary" and _coarser(v)


def _coarser(v: str) -> bool:
    """Whether KEPT is better than this type."""
    return kv_type(v).quantised and v != KEPT


def _ends(layers: int) -> list[int]:
    if layers < FEWEST_LAYERS:
        return []
    return [*range(EDGE), *range(layers - EDGE, layers)]


def _kept(side: str, layers: Sequence[int], type: str, why: str) -> str:
    return f"{side} of {_named(layers)} are stored as {KEPT} instead of {type}: {why}"


def _why_not(v: str, layers: int) -> str:
    if not _coarser(v):
        return f"--kv-protect boundary changes nothing: values in {v} lose no more than in {KEPT}"
    return (
        f"--kv-protect boundary changes nothing: of {layers} attention layers none are kept apart, "
        f"{FEWEST_LAYERS} is the fewest"
    )


def _named(layers: Sequence[int]) -> str:
    """Layers by number, as ranges where they follow each other."""
    ranges: list[list[int]] = []
    for layer in layers:
        if ranges and ranges[-1][-1] == layer - 1:
            ranges[-1][1:] = [layer]
        else:
            ranges.append([layer])
    words = ", ".join("-".join(map(str, each)) for each in ranges)
    return f"attention layer {words}" if len(layers) == 1 else f"attention layers {words}"
