"""The session: a model that is loaded once and answers many times."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from time import perf_counter
from typing import Any, Protocol

from turbodflash_engine.decode import Drafting, Ending, Tally, Target, Thoughts, decode, prefill
from turbodflash_engine.drafters._base import Drafter, NoDrafter
from turbodflash_engine.errors import BadUsage, DoesNotFit
from turbodflash_engine.events import Event, Finished, Progress, Started, Verified
from turbodflash_engine.info import Memory, ModelInfo
from turbodflash_engine.options import LoadOptions, SayOptions, SpecOptions
from turbodflash_engine.sampling import Sampler, resolve_seed
from turbodflash_engine.sampling.sampler import Vocabulary
from turbodflash_engine.tokenizer.stream import Detokenizer

__all__ = ["Memory", "Message", "ModelInfo", "Session", "open_session"]

Message = Mapping[str, Any]
"""A turn of a conversation: at least "role" and "content"."""


class Template(Protocol):
    """Messages to the prompt that a model was trained on."""

    @property
    def thought_marks(self) -> tuple[str, str] | None:
        """What the model writes before and after its thoughts, if it has any."""

    def render(self, messages: Sequence[Message], /, **variables: Any) -> str: ...


def open_session(
    options: LoadOptions, progress: Callable[[Progress], None] | None = None
) -> Session:
    """Load a model, reporting to `progress`. BadModel, DoesNotFit and BadUsage say why not."""
    from turbodflash_engine.loading import load

    loaded = load(options, progress)
    return Session(
        loaded.model,
        loaded.tokenizer,
        loaded.template,
        loaded.info,
        loaded.drafter,
        chunk=min(options.batch, options.ubatch),
        spec=options.spec,
    )


class Session:
    """One conversation's worth of memory over one model.

    Each prompt is the whole of what the model shall see; what the cache holds of its beginning is
    not computed again. One answer runs at a time: beginning another ends the one before.

    info: what was loaded. last: how the latest answer ended, also one that was closed early.
    """

    def __init__(
        self,
        model: Target,
        tokenizer: Vocabulary,
        template: Template,
        info: ModelInfo,
        drafter: Drafter | None = None,
        chunk: int = 512,
        spec: SpecOptions | None = None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        """chunk: prompt tokens computed in one pass. spec: how drafts are verified."""
        self.info = info
        self.last: Finished | None = None
        self._model = model
        self._tokenizer = tokenizer
        self._template = template
        self._drafter: Drafter = drafter or NoDrafter()
        self._drafting = Drafting(self._drafter, spec, clock)
        self._chunk = chunk
        self._held: list[int] = []
        self._running: Generator[Event, None, None] | None = None

    @property
    def used(self) -> int:
        """Tokens in the cache."""
        return self._model.cache.length

    @property
    def held(self) -> tuple[int, ...]:
        """What the cache holds: the latest prompt and, but for its last token, its answer."""
        return tuple(self._held)

    def count(self, text: str) -> int:
        """Tokens of a text that is neither begun nor ended by special ones."""
        return len(self._tokenizer.encode(text, add_special=False, parse_special=True))

    def chat(
        self, messages: Sequence[Message], options: SayOptions | None = None
    ) -> Iterator[Event]:
        """Answer the last message of a conversation.

        What cannot be answered raises here (BadUsage, DoesNotFit). Closing the iterator ends the
        answer after the step under way; the session then is as after its last complete token.
        """
        options = options or SayOptions()
        if not messages:
            raise BadUsage("there is no message to answer", hint="say something")
        asked = {} if options.thinking is None else {"enable_thinking": options.thinking}
        prompt = self._template.render(messages, **asked | dict(options.template_kwargs))
        marks = self._template.thought_marks if options.split_thoughts else None
        return self._begin(prompt, options, Thoughts.after(prompt, marks))

    def complete(self, prompt: str, options: SayOptions | None = None) -> Iterator[Event]:
        """Continue a text as it is; special tokens in it are recognised. Otherwise like `chat`."""
        if not prompt:
            raise BadUsage("the prompt is empty", hint="give a text to continue")
        return self._begin(prompt, options or SayOptions(), Thoughts(None))

    def _begin(self, text: str, options: SayOptions, thoughts: Thoughts) -> Iterator[Event]:
        prompt = self._tokenizer.encode(text, add_special=True, parse_special=True)
        self._check_fits(prompt, options)
        if self._running is not None:
            self._running.close()
        seed = resolve_seed(options.sample.seed, options.attempt)
        sampler = Sampler(options.sample, self._tokenizer, seed)
        ending = self._ending(len(prompt), options)
        self._running = self._answer(prompt, sampler, ending, thoughts)
        return self._running

    def _check_fits(self, prompt: Sequence[int], options: SayOptions) -> None:
        size, capacity = len(prompt), self._model.cache.capacity
        if not prompt:
            raise BadUsage("the prompt is empty", hint="say something")
        needed = size if options.max_tokens == 0 else size + 1
        if needed > capacity:
            room = ", and the answer needs room too" if size == capacity else ""
            raise DoesNotFit(
                f"the prompt has {size} tokens; the context holds {capacity}{room}",
                hint=f"use -c {1 << (needed - 1).bit_length()} or more, or a shorter prompt",
            )

    def _answer(
        self, prompt: list[int], sampler: Sampler, ending: Ending, thoughts: Thoughts
    ) -> Generator[Event, None, None]:
        history = list(prompt)
        cached = self._reuse(prompt)
        tally = Tally(len(prompt), cached, sampler.seed, self._drafting)
        try:
            yield Started(len(prompt), cached, sampler.seed)
            rest = prompt[cached:]
            output = yield from prefill(self._model, self._drafter, rest, self._chunk)
            seen = sampler.look(output)
            tally.prompt_done()
            for step in decode(self._model, self._drafting, sampler, ending, history, seen):
                tally.add(step)
                if step.drafted:
                    yield Verified(step.drafted, step.accepted)
                yield from thoughts.push(ending.text(), over=bool(ending.reason))
        except (GeneratorExit, KeyboardInterrupt):
            self.last = tally.finished("interrupted")
            raise
        finally:
            self._held = history[: self._model.cache.length]
            self._drafter.truncate(self._model.cache.length)
        self.last = tally.finished(ending.reason)
        yield self.last

    def _ending(self, prompt_tokens: int, options: SayOptions) -> Ending:
        left, limit = self._model.cache.capacity - prompt_tokens, "context"
        if 0 <= options.max_tokens <= left:
            left, limit = options.max_tokens, "length"
        return Ending(
            Detokenizer(self._tokenizer, special=options.special),
            eog=self._tokenizer.eog,
            stops=options.stop,
            left=left,
            limit=limit,
            show_eog=options.special,
        )

    def _reuse(self, prompt: Sequence[int]) -> int:
        """Cut the cache to what it shares with the prompt, whose last token is always computed."""
        shared = min(_common(self._held, prompt), len(prompt) - 1)
        cache = self._model.cache
        if shared < cache.length:
            cache.truncate(shared)
            self._drafter.truncate(cache.length)
        return cache.length


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    """Length of the common beginning."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(first), len(second)))
