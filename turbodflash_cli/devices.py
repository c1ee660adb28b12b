"""`turbodflash --list-devices`: what there is to compute on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from turbodflash_cli.progress import size
from turbodflash_cli.table import columns

if TYPE_CHECKING:
    from turbodflash_engine import DeviceInfo


def page() -> Iterator[str]:
    """The lines that are printed: the name to give to `-dev`, what it is, and its memory."""
    from turbodflash_engine import devices_here

    yield from columns(
        [[each.name, each.about, _memory(each)] for each in devices_here()], indent=""
    )


def _memory(device: DeviceInfo) -> str:
    amounts = [size(device.nbytes)] if device.nbytes else []
    if device.free is not None:
        amounts.append(f"{size(device.free)} free")
    words = [f"memory: {', '.join(amounts)}"] if amounts else []
    return "; ".join(words + [f"cannot be used: {device.lacks}"] * bool(device.lacks))
