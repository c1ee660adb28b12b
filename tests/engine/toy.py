"""A model small enough to think about: its next token is a hash of the last three."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from turbodflash_engine.cache import Cache
from turbodflash_engine.cache.pieces import Arrays, Piece, Pieces
from turbodflash_engine.decode.target import Output
from turbodflash_engine.drafters._base import Draft
from turbodflash_engine.info import Memory, ModelInfo
from turbodflash_engine.options import SampleOptions
from turbodflash_engine.sampling.candidates import Candidates, Largest
from turbodflash_engine.tokenizer.marks import Marks

VOCAB = 64
BOS, EOS, EOT = 0, 1, 2
HALF_CHARACTERS = {3: b"\xc3", 4: b"\xa9"}  # together: é
FIRST_LETTER = 8  # token 8 is "@", 9 is "A", …
MEMORY = 3  # tokens that a logit depends on


class ToyTokenizer:
    """One character a token, and one character of two tokens."""

    vocab_size = VOCAB
    eog = frozenset({EOS, EOT})
    suppress = frozenset({5})

    def encode(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        ids = [BOS] if add_special else []
        for character in text:
            ids += [3, 4] if character == "é" else [ord(character) - ord("@") + FIRST_LETTER]
        return ids

    def piece(self, token: int, /, special: bool = False) -> bytes:
        if token in (BOS, EOS, EOT):
            return b"<%d>" % token if special else b""
        return HALF_CHARACTERS.get(token) or bytes([ord("@") + token - FIRST_LETTER])


class ToyTemplate:
    thought_marks: Marks | None = None

    def render(self, messages: Sequence[Any], /, **variables: Any) -> str:
        return "".join(str(message["content"]) for message in messages)


class ToyLayer:
    """Remembers the tokens themselves, and can be cut back to multiples of `stride` alone."""

    nbytes = 0
    form = "toy"
    can_forget = True
    passive = False
    widest = 10**9

    def __init__(self, stride: int = 1) -> None:
        self.tokens: list[int] = []
        self.stride = stride

    def expect(self, count: int) -> None:
        pass

    def advance(self, length: int) -> None:
        assert len(self.tokens) == length

    def checkpoint(self) -> None:
        pass

    def pieces(self, length: int) -> Pieces:
        tokens = np.array(self.tokens, np.int32)
        return {"tokens": Piece("I32", (length,), lambda: tokens)}

    def fill(self, saved: Arrays, length: int) -> None:
        self.tokens = saved["tokens"].tolist()

    def mark(self, length: int) -> int:
        return length

    def restore(self, mark: int, kept: Sequence[int]) -> None:
        self.tokens[mark:] = [self.tokens[mark + row] for row in kept]

    def reach(self, length: int) -> int:
        return length if length == len(self.tokens) else length - length % self.stride

    def truncate(self, length: int) -> None:
        assert self.reach(length) == length
        del self.tokens[length:]

    def forget(self, start: int, stop: int, length: int) -> None:
        assert len(self.tokens) == length
        del self.tokens[start:stop]


@cache
def _noise(key: bytes) -> NDArray[np.float32]:
    rng = np.random.default_rng(list(key))
    return rng.standard_normal(VOCAB).astype(np.float32)


class ToyOutput(NamedTuple):
    logits: NDArray[np.float32]
    taps: tuple[NDArray[np.float32], ...]

    def largest(self, count: int, width: int) -> Largest:
        ids = np.argsort(-self.logits[:, :width], axis=1, kind="stable")[:, :count]
        return Largest(np.take_along_axis(self.logits, ids, axis=1), ids.astype(np.int32))


def all_of(output: Output) -> list[Candidates]:
    """Looks at all logits of a pass, as a sampler may."""
    return [Candidates(np.arange(len(logits)), logits) for logits in output.logits]


def paths_of(tokens: Sequence[int], parents: Sequence[int]) -> list[list[int]]:
    """For each row of a tree, the tokens from the root down to it."""
    paths: list[list[int]] = []
    for row, (token, parent) in enumerate(zip(tokens, parents, strict=True)):
        assert -1 <= parent < row or (row, parent) == (0, -1)
        paths.append([*(paths[parent] if parent >= 0 else []), token])
    return paths


class ToyModel:
    """passes: the tokens of every call. Taps are the fed tokens themselves, times the layer."""

    def __init__(
        self, capacity: int = 256, sharpness: float = 2.0, end: float = -np.inf, stride: int = 1
    ) -> None:
        """end: added to the logits of the tokens that end a generation. stride: of its layer."""
        self.layer = ToyLayer(stride)
        self.cache = Cache([self.layer], capacity)
        self.passes: list[list[int]] = []
        self.fail_at_pass: int | None = None
        self._sharpness, self._end = sharpness, end

    def __call__(
        self,
        tokens: Sequence[int],
        logits: int = 1,
        taps: tuple[int, ...] = (),
        parents: Sequence[int] | None = None,
    ) -> ToyOutput:
        assert 0 <= logits <= len(tokens)
        before = list(self.layer.tokens)
        self.cache.reserve(len(tokens))
        self.layer.tokens += tokens
        self.cache.advance(len(tokens))
        self.passes.append(list(tokens))
        if self.fail_at_pass == len(self.passes):
            raise KeyboardInterrupt
        paths = paths_of(tokens, range(-1, len(tokens) - 1) if parents is None else parents)
        rows = [self.row(before + path) for path in paths[len(tokens) - logits :]]
        column = np.asarray(tokens, np.float32)[:, None]
        table = np.asarray(rows, np.float32).reshape(logits, VOCAB)
        return ToyOutput(table, tuple(column * tap for tap in taps))

    def row(self, seen: Sequence[int]) -> NDArray[np.float32]:
        row = _noise(bytes(seen[-MEMORY:])) * np.float32(self._sharpness)
        row[[EOS, EOT]] += np.float32(self._end)
        return row


@dataclass
class ScriptedDrafter:
    """Drafts what a function of the position says, and checks that it sees what was kept."""

    script: Callable[[int, int], Sequence[int]]  # (position of the first draft, budget)
    taps: tuple[int, ...] = (1, 2)
    seen: list[int] = field(default_factory=list)
    drafted: list[list[int]] = field(default_factory=list)
    kept: int = 0  # tokens before those that were forgotten
    name = "scripted"
    longest = 16
    nbytes = 0

    def draft(self, history: Sequence[int], width: int) -> Draft:
        assert width >= 1
        kept, behind = self.seen[: self.kept], self.seen[self.kept :]
        assert list(history[: len(kept)]) == kept
        assert list(history[len(history) - 1 - len(behind) : -1]) == behind
        assert self.kept or len(self.seen) == len(history) - 1
        guess = list(self.script(len(self.seen) + 1, width))
        self.drafted.append(guess)
        return Draft(tuple(guess))

    def observe(
        self, tokens: Sequence[int], positions: range, taps: Sequence[Any], coming: int = 0
    ) -> None:
        assert positions == range(len(self.seen), len(self.seen) + len(tokens))
        for layer, rows in zip(self.taps, taps, strict=True):
            assert rows[:, 0].tolist() == [layer * token for token in tokens]
        self.seen += tokens

    def truncate(self, length: int) -> None:
        del self.seen[length:]

    form = "tokens"

    def pieces(self) -> Pieces:
        return {}

    def resume(self, tokens: Sequence[int], saved: Arrays) -> None:
        self.seen = list(tokens)

    def forget(self, start: int, stop: int) -> None:
        assert 0 <= start <= stop <= len(self.seen)
        del self.seen[start:stop]
        self.kept = start


TOY_INFO = ModelInfo(
    name="toy",
    path=Path("toy.gguf"),
    architecture="toy",
    file_type="F32",
    file_bytes=0,
    parameters=0,
    layers=1,
    context=64,
    trained_context=64,
    device="none",
    cache_type_k="f32",
    cache_type_v="f32",
    has_template=True,
    sample_defaults=SampleOptions(),
    sample_keys=(),
    memory=Memory(0, 0, 0),
)
