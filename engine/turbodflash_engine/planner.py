"""What a model and its draft would take, and whether they would fit, without loading them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from turbodflash_engine.cache import CacheTypes, type_names
from turbodflash_engine.devices import Devices, choose, room_of, wish_of
from turbodflash_engine.errors import DoesNotFit
from turbodflash_engine.memory import (
    AUTO,
    Alternative,
    Load,
    Plan,
    Room,
    Share,
    Wish,
    changes,
    lacking,
    largest_context,
    plan_memory,
    shares,
    splits,
)
from turbodflash_engine.opening import open_files
from turbodflash_engine.options import LoadOptions
from turbodflash_engine.sizing import cheaper_caches, needs_of


@dataclass(frozen=True, slots=True)
class Card:
    """name: for a person. free: bytes; None = unknown."""

    name: str
    free: int | None


@dataclass(frozen=True, slots=True)
class Planned:
    """All sizes in bytes.

    context: positions that would be kept. gpu_layers: on the card, the head counted as one.
    shares: what would be taken, by place, owner and kind. free: by place, None = unknown; missing:
    by place. largest_context: that would fit, up to the trained one; 0 = none.
    changes: options that would make it fit, the least harmful first. notes: for a person.
    """

    model: str
    draft: str | None
    device: str
    card: str | None
    context: int
    trained_context: int
    cache_type_k: str
    cache_type_v: str
    layers: int
    gpu_layers: int
    shares: tuple[Share, ...]
    free: dict[str, int | None]
    missing: dict[str, int]
    largest_context: int
    changes: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def fits(self) -> bool:
        return not any(self.missing.values())


def plan_files(options: LoadOptions, card: Card | None = None) -> Planned:
    """Plan what the options name; weights are not read.

    card: one that need not be here; None = what the options name is looked for on this machine.
    Raises BadModel, BadUsage or NoDevice; what does not fit is no error here.
    """
    devices = Devices(options)
    choice = choose(options if card is None else replace(options, gpu_layers=0), devices)
    room, device = room_of(choice), choice.main(devices)
    called = None if choice.memory is None else device.describe()
    if card is not None:
        room, called = Room(room.host, card.free, has_card=True), card.name
    with open_files(options) as files:
        load = needs_of(files, options, device)
        config, types = files.model.config, CacheTypes.of_model(options)
        type_k, type_v = type_names(types.of_layers(config.kv_shapes))
        wish = wish_of(options, choice, config.context)
        if card is not None:
            wish = _for_card(wish, options)
        plan, proposals = _plan(load, wish, room, cheaper_caches(files, options, device))
        longest = max(wish.wanted, config.context)
        return Planned(
            model=str(files.model.file.path),
            draft=str(files.draft.file.path) if files.draft else None,
            device=device.describe(),
            card=called,
            context=plan.context,
            trained_context=config.context,
            cache_type_k=type_k,
            cache_type_v=type_v,
            layers=config.layers,
            gpu_layers=plan.split.layers,
            shares=plan.shares,
            free={"host": room.host, "card": room.card},
            missing=lacking(load, plan.context, plan.split, room),
            largest_context=largest_context(load, plan.split, room, longest),
            changes=tuple(proposals),
            notes=plan.notes + types.notes(config.kv_shapes),
        )


def _for_card(wish: Wish, options: LoadOptions) -> Wish:
    """The same for a card that is not here."""
    on_host = options.spec is not None and options.spec.gpu_layers == 0
    layers = AUTO if options.gpu_layers is None else options.gpu_layers
    return wish._replace(layers=layers, draft=False if on_host else None)


def _plan(
    load: Load, wish: Wish, room: Room, cheaper: Iterable[Alternative]
) -> tuple[Plan, list[str]]:
    """The plan and nothing to change, or what it would be and what would make it fit."""
    try:
        return plan_memory(load, wish, room), []
    except DoesNotFit:
        split = splits(load, wish, room)[0]
        plan = Plan(wish.wanted, split, shares(load, wish.wanted, split))
        return plan, changes(load, wish, room, cheaper)
