"""Free memory, and what a model needs of it, before anything is loaded."""

from turbodflash_engine.memory.free import free_bytes
from turbodflash_engine.memory.needs import (
    KINDS,
    LayerCache,
    Needs,
    Piece,
    Scratch,
    by_kind,
    pieces_of,
)
from turbodflash_engine.memory.placing import CARD, HOST, Load, Share, Split, shares, taken
from turbodflash_engine.memory.planning import (
    AUTO,
    Alternative,
    Plan,
    Room,
    Wish,
    changes,
    fits,
    gib,
    lacking,
    largest_context,
    plan_memory,
    rounded,
    splits,
)

__all__ = [
    "AUTO",
    "CARD",
    "HOST",
    "KINDS",
    "Alternative",
    "LayerCache",
    "Load",
    "Needs",
    "Piece",
    "Plan",
    "Room",
    "Scratch",
    "Share",
    "Split",
    "Wish",
    "by_kind",
    "changes",
    "fits",
    "free_bytes",
    "gib",
    "lacking",
    "largest_context",
    "pieces_of",
    "plan_memory",
    "rounded",
    "shares",
    "splits",
    "taken",
]
