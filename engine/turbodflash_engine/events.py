"""What the engine says while it works. The engine says, somebody else paints."""

from __future__ import annotations

from typing import NamedTuple


class Progress(NamedTuple):
    """Something long is under way: `done` of `total` (0 = unknown) in `unit`."""

    stage: str
    done: int
    total: int
    unit: str


class Started(NamedTuple):
    """The prompt is encoded; `cached_tokens` of it are still in the cache. `seed` repeats it."""

    prompt_tokens: int
    cached_tokens: int
    seed: int


class Text(NamedTuple):
    """Whole characters of the answer, or of the thinking before it."""

    piece: str
    thought: bool = False


class Verified(NamedTuple):
    """One step: so many tokens were drafted, so many of them were right."""

    drafted: int
    accepted: int


class Finished(NamedTuple):
    """The last event of an answer.

    reason: "stop" (end of generation), "length" (`max_tokens`), "context" (cache full),
        "reverse-prompt" (a stop string) or "interrupted".
    prefill_seconds: from the start to the end of the prompt; decode_seconds: everything after it.
    steps: passes of the model after the prompt.
    """

    reason: str
    prompt_tokens: int
    cached_tokens: int
    new_tokens: int
    prefill_seconds: float
    decode_seconds: float
    seed: int
    drafted: int = 0
    accepted: int = 0
    steps: int = 0

    @property
    def prompt_tokens_per_second(self) -> float:
        """Tokens computed now, those found in the cache left out; 0.0 when no time passed."""
        computed = self.prompt_tokens - self.cached_tokens
        return computed / self.prefill_seconds if self.prefill_seconds > 0 else 0.0

    @property
    def tokens_per_second(self) -> float:
        """The first token is the prompt's work, so one less is counted; 0.0 when no time passed."""
        counted = max(self.new_tokens - 1, 0)
        return counted / self.decode_seconds if self.decode_seconds > 0 else 0.0


Event = Progress | Started | Text | Verified | Finished
