"""Memory of all positions: one slot of keys and values per position."""

from __future__ import annotations

from turbodflash_kernels.device import KV


class DenseLayer:
    """Keys and values live in the slot of their position, and no token looks past its own.

    So there is nothing to undo: a slot past the length of the stack is never read before it is
    written again.
    """

    def __init__(self, kv: KV) -> None:
        self.kv = kv

    @property
    def nbytes(self) -> int:
        return self.kv.nbytes

    def mark(self) -> None:
        return None

    def restore(self, mark: None, keep: int) -> None:
        pass

    def truncate(self, length: int) -> None:
        pass
