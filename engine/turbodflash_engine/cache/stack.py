"""The layers' memories as one. It is transactional: what may be wrong is tried, not done."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from turbodflash_engine.cache.pieces import Arrays, Pieces, within
from turbodflash_engine.errors import DoesNotFit


class Layer(Protocol):
    """The memory of one layer. The stack counts positions; a layer keeps contents."""

    @property
    def nbytes(self) -> int: ...

    @property
    def passive(self) -> bool:
        """Whether passes and trials are nothing to it, unless rows of a tree are to be moved.

        Then `expect`, `advance` and `mark` are not called, and `restore` only for such rows, with
        the length as its mark: a token is short, and passes many layers.
        """
        ...

    @property
    def widest(self) -> int:
        """The most tokens of a pass, or of all passes of a trial; always the same."""
        ...

    def expect(self, count: int) -> None:
        """Called before a pass of so many tokens."""
        ...

    def advance(self, length: int) -> None:
        """Called after a pass, within a trial or not: it was fed up to `length` tokens."""
        ...

    def mark(self, length: int) -> Any:
        """Called before tokens that may be wrong, after `length` others: what `restore` needs."""
        ...

    def restore(self, mark: Any, kept: Sequence[int]) -> None:
        """Become what the layer had been after `mark`, had only these of the tokens since come.

        kept: which of them, counted from 0, in order. Raises ReadAgain if it must be fed these
        anew, from the mark on.
        """
        ...

    def checkpoint(self) -> None:
        """What is held now is worth going back to, the end of it above all."""
        ...

    def reach(self, length: int) -> int:
        """The longest beginning, at most `length` tokens, that `truncate` can go back to.

        None at all and all that it holds always are. Of two lengths the larger reaches no less.
        """
        ...

    def truncate(self, length: int) -> None:
        """Become what the layer had been after its first `length` tokens, which it reaches."""
        ...

    @property
    def form(self) -> str:
        """What contents are stored in: those of a layer of the same form can be put into this."""
        ...

    def pieces(self, length: int) -> Pieces:
        """What it remembers of the first `length` tokens."""
        ...

    def fill(self, saved: Arrays, length: int) -> None:
        """Become what `pieces` came of. Raises KeyError or ValueError for what it does not take."""
        ...

    @property
    def can_forget(self) -> bool:
        """Whether `forget` can be asked for."""
        ...

    def forget(self, start: int, stop: int, length: int) -> None:
        """Of `length` tokens, those from `start` to `stop` - 1 are gone; later ones close up."""
        ...


class ReadAgain(Exception):
    """A layer could not keep a part of a trial: it is as it was when the trial began."""


class Trial:
    """Tokens that may be wrong; which of them count is said by `keep` or `keep_path`."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self.start = cache.length
        self.kept: Sequence[int] = ()

    @property
    def fed(self) -> int:
        """Tokens that came since the trial began."""
        return self._cache.length - self.start

    def keep(self, count: int) -> None:
        """The first `count` tokens fed since the trial began have happened, the rest have not."""
        if not 0 <= count <= self.fed:
            raise ValueError(f"cannot keep {count} tokens of a trial that was fed {self.fed}")
        self.kept = range(count)

    def keep_path(self, rows: Sequence[int]) -> None:
        """Of a tree, the tokens of these rows have happened, one after the other.

        rows: from the root, row 0, down; each the parent of the next.
        """
        path = list(rows)
        if path[:1] != [0] or path != sorted(set(path)) or path[-1] >= self.fed:
            raise ValueError(f"{path} is no path from row 0 of a trial that was fed {self.fed}")
        self.kept = path


class Cache:
    """layers: the memories of a model's layers. capacity: positions each of them has room for.

    widest: the most tokens of a pass, or of all passes of a trial.
    reader: feeds tokens, for when a layer could not keep a part of a trial; the model sets it.
    """

    def __init__(self, layers: Sequence[Layer], capacity: int) -> None:
        self.layers = tuple(layers)
        self._active = tuple(layer for layer in layers if not layer.passive)
        self.capacity = capacity
        self.widest = min(layer.widest for layer in layers)
        self.length = 0
        self.reader: Callable[[Sequence[int]], object] | None = None
        self._tried: list[int] = []
        self._trial: Trial | None = None

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

    def expect(self, tokens: Sequence[int]) -> None:
        """These tokens are about to be fed. Raises DoesNotFit when there is no room for them."""
        self.reserve(len(tokens))
        if self._trial:
            self._tried[self._trial.fed :] = tokens
        for layer in self._active:
            layer.expect(len(tokens))

    def advance(self, count: int) -> None:
        """The layers now remember `count` more tokens."""
        self.reserve(count)
        self.length += count
        for layer in self._active:
            layer.advance(self.length)

    @property
    def form(self) -> str:
        """That of its layers."""
        return " ".join(layer.form for layer in self.layers)

    def pieces(self) -> Pieces:
        """All that is remembered."""
        return {
            f"{index}.{name}": piece
            for index, layer in enumerate(self.layers)
            for name, piece in layer.pieces(self.length).items()
        }

    def fill(self, saved: Arrays, length: int) -> None:
        """Become the cache of the same form and so many tokens that these pieces came of.

        Raises KeyError or ValueError for what is no such thing; the cache is then empty.
        """
        self.truncate(0)
        if length > self.capacity:
            raise ValueError(f"{length} tokens are more than {self.capacity}")
        for index, layer in enumerate(self.layers):
            layer.fill(within(saved, f"{index}."), length)
        self.length = length

    def reach(self, length: int) -> int:
        """The longest beginning, at most `length` tokens, that `truncate` can go back to.

        Where not all of them can be had, those that follow must be read again.
        """
        reached = min(length, self.length)
        while (shorter := min(layer.reach(reached) for layer in self.layers)) < reached:
            reached = shorter
        return reached

    def truncate(self, length: int) -> None:
        """Forget all but the first `length` tokens; raises ValueError if it does not reach them."""
        if not 0 <= length <= self.length or self.reach(length) < length:
            raise ValueError(f"cannot cut a cache of {self.length} tokens to {length}")
        for layer in self.layers:
            layer.truncate(length)
        self.length = length

    def checkpoint(self) -> None:
        """What is held now is worth going back to, though not all layers can by themselves."""
        for layer in self.layers:
            layer.checkpoint()

    @property
    def can_forget(self) -> bool:
        """Whether `forget` can be asked for: recurrent layers never forget a part."""
        return all(layer.can_forget for layer in self.layers)

    def forget(self, start: int, stop: int) -> None:
        """Tokens start..stop-1 are gone, and those behind them take their positions.

        Only where `can_forget` is true. What these were told by the tokens that are gone stays in
        them. If it is cut short, the first `start` tokens are left.
        """
        if not 0 <= start <= stop <= self.length:
            raise ValueError(f"cannot forget tokens {start} to {stop - 1} of {self.length}")
        length, self.length = self.length, start  # of a half of it nothing can be kept
        try:
            for layer in self.layers:
                layer.forget(start, stop, length)
        except BaseException:
            for layer in self.layers:
                layer.truncate(start)
            raise
        self.length = length - (stop - start)

    @contextmanager
    def trial(self) -> Iterator[Trial]:
        """Feed tokens that may be wrong: what `keep` did not claim never happened.

        That holds after an exception too, so nobody can leave half a block behind.
        """
        marks = [layer.mark(self.length) for layer in self._active]
        self._trial = trial = Trial(self)
        try:
            yield trial
        except BaseException:
            trial.kept = ()
            raise
        finally:
            self._trial = None
            self._settle(trial, marks)

    def _settle(self, trial: Trial, marks: Sequence[Any]) -> None:
        again = False
        if trial.kept != range(len(trial.kept)):
            for layer in self.layers:
                if layer.passive:
                    layer.restore(trial.start, trial.kept)
        for layer, mark in zip(self._active, marks, strict=True):
            try:
                layer.restore(mark, trial.kept)
            except ReadAgain:
                again = True
        self.length = trial.start
        if again:
            assert self.reader is not None
            self.reader([self._tried[row] for row in trial.kept])
        self.length = trial.start + len(trial.kept)
