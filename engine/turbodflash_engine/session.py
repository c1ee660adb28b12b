"""The session: a model that is loaded once and answers many times."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

from turbodflash_engine.decode import (
    Drafting,
    Ending,
    Onlooker,
    Shift,
    Tally,
    Target,
    Thoughts,
    Window,
    decode,
    prefill,
)
from turbodflash_engine.decode.window import ALL, common
from turbodflash_engine.drafters._base import Drafter, NoDrafter
from turbodflash_engine.errors import BadUsage, DoesNotFit
from turbodflash_engine.events import Event, Finished, Progress, Started, Verified
from turbodflash_engine.info import Memory, ModelInfo
from turbodflash_engine.options import LoadOptions, SayOptions, SpecOptions
from turbodflash_engine.sampling import Sampler, resolve_seed
from turbodflash_engine.sampling.sampler import Vocabulary
from turbodflash_engine.tokenizer.marks import Marks
from turbodflash_engine.tokenizer.stream import Detokenizer

if TYPE_CHECKING:
    from turbodflash_engine.saving import Belongs

UNTIL_FULL = -2
"""As many tokens as the context has room for, also where it could shift."""

__all__ = ["Memory", "Message", "ModelInfo", "Session", "open_session"]

Message = Mapping[str, Any]
"""A turn of a conversation: at least "role" and "content"."""


class Template(Protocol):
    """Messages to the prompt that a model was trained on."""

    @property
    def thought_marks(self) -> Marks | None:
        """What the model writes around its thoughts, if it has any."""

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
        keep=options.keep if options.context_shift else None,
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
        keep: int | None = None,
    ) -> None:
        """chunk: prompt tokens computed in one pass. spec: how drafts are verified.

        keep: as in `LoadOptions`; None = a context that is full ends the answer.
        """
        self.info = info
        self.last: Finished | None = None
        self._model = model
        self._tokenizer = tokenizer
        self._template = template
        self._drafter: Drafter = drafter or NoDrafter()
        self._drafting = Drafting(self._drafter, spec, clock)
        self._chunk = chunk
        self._window = Window(model, self._drafter)
        self._keep, self._first_prompt = keep, 0
        self._running: Generator[Event, None, None] | None = None

    @property
    def used(self) -> int:
        """Tokens in the cache."""
        return self._model.cache.length

    @property
    def held(self) -> tuple[int, ...]:
        """What the cache holds: the latest prompt and, but for its last token, its answer.

        Tokens that had to leave are not among them.
        """
        return tuple(self._window.tokens)

    def restore(self, path: Path) -> int:
        """Hold what `save` wrote, so that a prompt which begins so is not computed again.

        The result is the number of tokens. Raises NotReusable for what does not belong to this
        model, its draft and the types of their caches, or is damaged: the session then holds
        nothing; and BadUsage for a file that is no prompt cache.
        """
        from turbodflash_engine.saving import read_cache

        self._stop()
        self._window.clear()
        read_cache(path, self._belongs(), self._window)
        return self.used

    def save(self, path: Path, *, answer: bool = False) -> int:
        """Write the latest prompt and its cache, with the answer if asked for.

        Without, the session forgets the answer. The result is the number of tokens; of none, no
        file is written. A file that was there is replaced at once, or, on any failure, not at all.
        """
        from turbodflash_engine.saving import write_cache

        self._stop()
        if not answer:
            self._window.leave_prompt()
        if self.used:
            write_cache(path, self._belongs(), self._window)
        return self.used

    def _belongs(self) -> Belongs:
        from turbodflash_engine.saving import Belongs

        draft = self.info.draft.path if self.info.draft else None
        return Belongs.to(self._model, self._drafter, self.info.path, draft)

    def _stop(self) -> None:
        if self._running is not None:
            self._running.close()

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
        return self._begin(prompt, options, self._template.thought_marks)

    def complete(self, prompt: str, options: SayOptions | None = None) -> Iterator[Event]:
        """Continue a text as it is; special tokens in it are recognised. Otherwise like `chat`."""
        if not prompt:
            raise BadUsage("the prompt is empty", hint="give a text to continue")
        return self._begin(prompt, options or SayOptions(), None)

    def _begin(self, text: str, options: SayOptions, marks: Marks | None) -> Iterator[Event]:
        prompt = self._tokenizer.encode(text, add_special=True, parse_special=True)
        self._check_fits(prompt, options)
        self._stop()
        seed = resolve_seed(options.sample.seed, options.attempt)
        sampler: Onlooker = Sampler(options.sample, self._tokenizer, seed)
        if marks and options.thought_budget >= 0:
            from turbodflash_engine.decode.budget import Budget, Budgeted

            thinking = Thoughts.after(text, marks).thinking
            budget = Budget(options.thought_budget, options.budget_message)
            sampler = Budgeted(sampler, self._tokenizer, marks, budget, thinking=thinking)
        thoughts = Thoughts.after(text, marks if options.split_thoughts else None)
        preserved = self._tokens(marks.preserved) if marks else ()
        detokenizer = Detokenizer(self._tokenizer, options.special, preserved)
        self._running = self._answer(prompt, sampler, options, thoughts, detokenizer)
        return self._running

    def _tokens(self, texts: Sequence[str]) -> frozenset[int]:
        """Those texts that are tokens."""
        encoded = (self._tokenizer.encode(t, add_special=False, parse_special=True) for t in texts)
        return frozenset(ids[0] for ids in encoded if len(ids) == 1)

    def _check_fits(self, prompt: Sequence[int], options: SayOptions) -> None:
        size, capacity = len(prompt), self._model.cache.capacity
        if not prompt:
            raise BadUsage("the prompt is empty", hint="say something")
        needed = size if options.max_tokens == 0 else size + 1
        if needed > capacity and self._keep is None:
            room = ", and the answer needs room too" if size == capacity else ""
            raise DoesNotFit(
                f"the prompt has {size} tokens; the context holds {capacity}{room}",
                hint=f"use -c {1 << (needed - 1).bit_length()} or more, or a shorter prompt; "
                "--context-shift drops what is too much",
            )

    def _answer(
        self,
        prompt: list[int],
        sampler: Onlooker,
        options: SayOptions,
        thoughts: Thoughts,
        detokenizer: Detokenizer,
    ) -> Generator[Event, None, None]:
        window, shift = self._window, self._shift(prompt)
        room = self._model.cache.capacity - (options.max_tokens != 0)
        history = window.begin(prompt, shift, max(room, 1))
        size, cached = len(history), self._model.cache.length
        ending = self._ending(size, options, detokenizer)
        tally = Tally(size, cached, sampler.seed, self._drafting)

        def make_room() -> None:
            if shift is not None:
                window.make_room(shift)

        try:
            yield Started(size, cached, sampler.seed)
            rest = history[cached:]
            seen = yield from prefill(self._model, self._drafter, rest, self._chunk, sampler.look)
            tally.prompt_done()
            for step in decode(
                self._model, self._drafting, sampler, ending, history, seen, make_room
            ):
                tally.add(step)
                if step.drafted:
                    yield Verified(step.drafted, step.accepted)
                yield from thoughts.push(ending.text(), over=bool(ending.reason))
        except (GeneratorExit, KeyboardInterrupt):
            self.last = tally.finished("interrupted", window.dropped)
            raise
        finally:
            window.end(history, shift)
        self.last = tally.finished(ending.reason, window.dropped)
        yield self.last

    def _shift(self, prompt: Sequence[int]) -> Shift | None:
        """What leaves a full context, of this prompt and after it."""
        if self._keep is None:
            return None
        start = self._tokenizer.encode("", add_special=True, parse_special=False)
        begun = common(start, prompt)
        if not self._first_prompt or common(self._window.tokens, prompt) <= begun:
            self._first_prompt = len(prompt)
        keep = self._first_prompt if self._keep < 0 else begun + self._keep
        return Shift.of(self._model.cache.capacity, keep)

    def _ending(self, prompt_tokens: int, options: SayOptions, detokenizer: Detokenizer) -> Ending:
        left, limit = self._model.cache.capacity - prompt_tokens, "context"
        if self._keep is not None and options.max_tokens != UNTIL_FULL:
            left = ALL
        if 0 <= options.max_tokens <= left:
            left, limit = options.max_tokens, "length"
        return Ending(
            detokenizer,
            eog=self._tokenizer.eog,
            stops=options.stop,
            left=left,
            limit=limit,
            show_eog=options.special,
        )
