"""The layers' memories as one. It is transactional: what may be wrong is tried, not done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from turbodflash_engine.errors import DoesNotFit


class Layer(Protocol):
    """The memory of one layer. The stack counts positions; a layer keeps contents."""

    @property
    def nbytes(self) -> int: ...

    def mark(self) -> Any:
        """Called before tokens that may be wrong: whatever `restore` will need."""
        ...

    def restore(self, mark: Any, keep: int) -> None:
        """Become what the layer had been after `mark` and the first `keep` tokens since."""
        ...

    def truncate(self, length: int) -> None:
        """Become what the layer had been after its first `length` tokens."""
        ...


class Trial:
    """Tokens that may be wrong; how many of them count is said by `keep`."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self.start = cache.length
        self.kept = 0

    def keep(self, count: int) -> None:
        """The first `count` tokens fed since the trial began have happened, the rest have not."""
        fed = self._cache.length - self.start
        if not 0 <= count <= fed:
            raise ValueError(f"cannot keep {count} tokens of a trial that was fed {fed}")
        self.kept = count


class Cache:
    """layers: one memory per model layer. capacity: positions each of them has room for."""

    def __init__(self, layers: Sequence[Layer], capacity: int) -> None:
        self.layers = tuple(layers)
        self.capacity = capacity
        self.length = 0

    @property
    def nbytes(self) -> int:
        return sum(layer.nbytes for layer in self.layers)

    def reserve(self, count: int) -> None:
        """Raises DoesNotFit when there is no room for `count` more tokens."""
        if self.length + count > self.capacity:
            raise DoesNotFit(
                f"the context is full: {count} tokens more than {self.length} "
                f"are over {self.capacity}",
                hint="use a larger context",
            )

    def advance(self, count: int) -> None:
        """The layers now remember `count` more tokens."""
        self.reserve(count)
        self.length += count

    def truncate(self, length: int) -> None:
        """Forget all but the first `length` tokens."""
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot cut a cache of {self.length} tokens to {length}")
        for layer in self.layers:
            layer.truncate(length)
        self.length = length

    @contextmanager
    def trial(self) -> Iterator[Trial]:
        """Feed tokens that may be wrong: what `keep` did not claim never happened.

        That holds after an exception too, so nobody can leave half a block behind.
        """
        marks = [layer.mark() for layer in self.layers]
        trial = Trial(self)
        try:
            yield trial
        except BaseException:
            trial.kept = 0
            raise
        finally:
            for layer, mark in zip(self.layers, marks, strict=True):
                layer.restore(mark, trial.kept)
            self.length = trial.start + trial.kept
