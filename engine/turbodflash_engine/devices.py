"""Which devices a run computes on: from what was asked for to what there is."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from turbodflash_engine.memory import AUTO, Room, Wish, free_bytes
from turbodflash_engine.options import EVERY_LAYER, LoadOptions, SpecOptions
from turbodflash_kernels.cards import FoundCard, cards, interpreting
from turbodflash_kernels.device import Device, open_device
from turbodflash_kernels.errors import NoDevice

HOST = "cpu"

HELPERS = 4
"""Processes that compile a model's kernels, where there are as many cores: more would find little
that is not under way. Each takes a quarter of a gigabyte."""


class Devices:
    """Each opened when it is first asked for; all of one name are one.

    compiling: called with a kernel's name before it is compiled.
    """

    def __init__(
        self, options: LoadOptions, compiling: Callable[[str], None] | None = None
    ) -> None:
        self._options, self._compiling = options, compiling
        self._opened: dict[str, Device] = {}

    @property
    def host(self) -> Device:
        return self.named(HOST)

    def named(self, name: str) -> Device:
        """Raises NoDevice."""
        if name not in self._opened:
            options = self._options
            self._opened[name] = open_device(
                name,
                options.threads,
                options.threads_batch,
                self._compiling,
                graphs=options.graphs,
                helpers=HELPERS,
            )
        return self._opened[name]

    def flush(self) -> None:
        for device in self._opened.values():
            device.flush()


class DeviceInfo(NamedTuple):
    """One device of this machine. name: as options spell it.

    free: bytes that may be taken, None = unknown. nbytes: of a memory of its own, 0 = it has none.
    lacks: why it cannot be used; empty if it can.
    """

    name: str
    about: str
    free: int | None
    nbytes: int = 0
    lacks: str = ""


class Choice(NamedTuple):
    """Where a model and its draft shall compute, before it is known what fits.

    card: takes the model's layers, as many as `layers` says, None = as many as fit; None = there is
    none. draft: None = where the model's head is. unasked: the card is used because it is there.
    """

    card: Device | None
    layers: int | None
    draft: Device | None
    unasked: bool = False

    def main(self, devices: Devices) -> Device:
        """The one whose layout of weights memory is planned with."""
        return self.memory or self.card or devices.host

    @property
    def memory(self) -> Device | None:
        """The card of the two that has memory of its own, if any."""
        for device in (self.card, self.draft):
            if device is not None and device.free_bytes() is not None:
                return device
        return None


def choose(options: LoadOptions, devices: Devices) -> Choice:
    """What the options mean on this machine. Raises NoDevice if they ask for what it lacks.

    A card that nobody asked for is used if it will do, and otherwise left alone.
    """
    layers, spec, unasked = options.gpu_layers, options.spec or SpecOptions(), False
    if options.device == HOST or layers == 0:
        card = None
    elif options.device != "auto":
        card = devices.named(options.device)
    elif layers:
        card = devices.named(_best_card())
    else:
        card, unasked = _card_if_any(devices), True
    if card is not None and layers is None and card.free_bytes() is None:
        layers = EVERY_LAYER  # it shares the host's memory
    return Choice(card, layers, _draft_device(spec, card, devices), unasked)


def wish_of(options: LoadOptions, choice: Choice, trained: int) -> Wish:
    """What is wanted of memory. trained: positions that the model was trained on."""
    card, layers = choice.memory, choice.layers
    return Wish(
        trained,
        options.context,
        layers=0 if choice.card is not card else AUTO if layers is None else layers,
        draft=None if choice.draft is None else choice.draft is card,
        fit=options.fit,
    )


def room_of(choice: Choice) -> Room:
    """What memory there is."""
    card = choice.memory
    return Room(free_bytes(), card.free_bytes() if card else None, has_card=card is not None)


def _draft_device(spec: SpecOptions, card: Device | None, devices: Devices) -> Device | None:
    if spec.gpu_layers == 0:
        return devices.host
    if spec.device != "auto":
        return devices.named(spec.device)
    if spec.gpu_layers is None:
        return None
    return card or devices.named(_best_card())


def _best_card() -> str:
    """The first that will do; the first of all, if none does."""
    usable = (index for index, card in enumerate(cards()) if card.lacks is None)
    return f"gpu:{next(usable, 0)}"


def _card_if_any(devices: Devices) -> Device | None:
    if interpreting() or all(card.lacks for card in cards()):
        return None
    try:
        return devices.named(_best_card())
    except NoDevice:
        return None


def devices_here() -> tuple[DeviceInfo, ...]:
    """All that this machine could compute on."""
    plain = "plain numpy, slow and exact"
    return (
        DeviceInfo(HOST, open_device(HOST).describe().removeprefix(f"{HOST} "), free_bytes()),
        *(_card_here(index, card) for index, card in enumerate(cards())),
        DeviceInfo("reference", plain, free_bytes()),
    )


def _card_here(index: int, card: FoundCard) -> DeviceInfo:
    major, minor = divmod(card.capability, 10)
    about = f"{card.name}, compute capability {major}.{minor}"
    info = DeviceInfo(f"gpu:{index}", about, None, nbytes=card.nbytes)
    try:
        return info._replace(free=open_device(info.name).free_bytes())
    except NoDevice as why:
        return info._replace(lacks=str(why))
