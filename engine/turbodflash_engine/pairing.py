"""Who drafts: what the draft's file is, whether it fits the model, and the drafters, built."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from turbodflash_engine import plugins
from turbodflash_engine.cache import CacheTypes
from turbodflash_engine.drafters._across import across
from turbodflash_engine.drafters._base import Drafter, FileKind, RuleKind, Setting
from turbodflash_engine.drafters._first import FirstOf
from turbodflash_engine.drafters._words import EMBEDDING, HEAD
from turbodflash_engine.errors import BadModel, BadUsage
from turbodflash_engine.gguf import GgufFile, open_gguf
from turbodflash_engine.info import DraftInfo, Memory
from turbodflash_engine.layers.tensors import Info, Tensors
from turbodflash_engine.memory import rounded
from turbodflash_engine.metadata import Metadata
from turbodflash_engine.models._base import CachePlan, Form, Shared
from turbodflash_engine.options import SPEC_TYPES, LoadOptions, SpecOptions
from turbodflash_engine.quant import weight_type
from turbodflash_engine.tokenizer.pairing import check_same_tokens
from turbodflash_kernels.device import Device

FALLBACK = "ngram-cache"
"""The type that guesses where a draft does not pay: of those without a file, it brings the most in
ordinary text, and costs the least where it is wrong."""

_SIMPLE = "draft_model"
"""The module that takes any model; it is asked last whether a file is of its kind."""


@dataclass(slots=True)
class DraftFile:
    """A draft's file, opened: `type` is what it is, as `--spec-type` spells it.

    within: it is the model's own file; `tensors` are those of the draft alone.
    """

    file: GgufFile
    type: str
    kind: FileKind
    config: Any
    tensors: Tensors
    within: bool = False

    def check(self, model: Metadata, form: Form, options: SpecOptions) -> None:
        """Raises BadModel unless it can draft for a model of this form and these tokens."""
        self.kind.check(self.config, form, options)
        check_same_tokens(self.file.metadata, model)
        self.tensors.check(self.kind.layout(self.config, self.tensors))

    @property
    def nbytes(self) -> int:
        """Of the file, or of what the model's file has of it."""
        return self.tensors.nbytes if self.within else self.file.nbytes

    def notes(self, target: Shared) -> tuple[str, ...]:
        """Sentences on this pair that a person should read."""
        return self.kind.notes(self.config, self.tensors, target)

    @property
    def borrows(self) -> tuple[str, ...]:
        """Which tables it uses of its model, having none of its own."""
        tables = {"embedding": EMBEDDING, "head": HEAD}
        if self.kind.whole:
            return ()
        return tuple(kind for kind, name in tables.items() if name not in self.tensors)

    def build(
        self,
        device: Device,
        target: Shared,
        plan: CachePlan,
        options: SpecOptions,
    ) -> Drafter:
        """plan: its own cache, of no more positions than the model's."""
        setting = Setting(device, target, plan, options)
        return across(self.kind.build(self.config, self.tensors, setting), device, target)


def open_draft(options: SpecOptions, loaded: Callable[[int], None]) -> DraftFile | None:
    """The draft's file, if there is one; the caller closes it.

    Raises BadModel for a file that is no draft, or another one than the types asked for, and
    BadUsage when a type needs a file and there is none. loaded: told how many bytes were decoded.
    """
    asked = [name for name in options.types if _module(name) in _file_kinds()]
    if options.model is None:
        if asked and own_type(options) is None:
            raise BadUsage(f"{asked[0]} needs a draft model", hint="give its file with -md")
        return None
    file = open_gguf(options.model)
    try:
        type, kind = _identified(file)
        for name in asked:
            if name != type:
                raise BadModel(
                    f"'{file.path}' drafts as {type}, not as {name}, which was asked for",
                    hint=f"ask for {type}, or leave the type out: it is read from the file",
                )
        tensors = Tensors(file.tensors, str(file.path), _type_of, loaded, file.metadata)
        return DraftFile(file, type, kind, kind.read(file.metadata), tensors)
    except BaseException:
        file.close()
        raise


def own_type(options: SpecOptions) -> str | None:
    """The type of a draft that the model's own file is asked for; None if it is not."""
    if options.model is not None:
        return None
    kinds = ((name, plugins.find("drafters", _module(name))) for name in options.types)
    own = (name for name, kind in kinds if isinstance(kind, FileKind) and kind.within)
    return next(own, None)


def own_draft(file: GgufFile, type: str, loaded: Callable[[int], None]) -> DraftFile:
    """The draft that a model's own file holds. Raises BadModel if it holds none."""
    kind = _file_kinds()[_module(type)]
    assert kind.within is not None
    config = kind.read(file.metadata)
    infos = {name: file.tensors[name] for name in kind.within(file.metadata, file.tensors)}
    tensors = Tensors(infos, str(file.path), _type_of, loaded, file.metadata)
    return DraftFile(file, type, kind, config, tensors, within=True)


def rules(options: SpecOptions) -> list[Drafter]:
    """The drafters asked for that need no file."""
    asked = (name for name in SPEC_TYPES if name in options.types)
    return [drafter for name in asked if (drafter := _rule(name, options))]


def one_of(drafters: list[Drafter], last: Drafter | None = None) -> Drafter | None:
    """All of them as one, with a fallback as the last; None of none."""
    if last or len(drafters) > 1:
        return FirstOf(drafters, last)
    return next(iter(drafters), None)


def fallback(options: SpecOptions, longest: int) -> Drafter | None:
    """What guesses where a draft from a file does not pay, and no further than that would."""
    measured = options.width is None and not options.tree and not options.synth_rates
    if not (options.fallback and measured) or rules(options):
        return None
    return _rule(FALLBACK, replace(options, n_max=longest, n_min=0))


def _rule(type: str, options: SpecOptions) -> Drafter | None:
    kind = plugins.find("drafters", _module(type))
    return kind.build(options) if isinstance(kind, RuleKind) else None


def draft_info(
    drafters: Sequence[Drafter],
    last: Drafter | None,
    draft: DraftFile | None,
    spec: SpecOptions,
    planned: Memory,
    context: int,
) -> DraftInfo:
    """What is told of drafters. last: the fallback; planned: for them; context: positions of the
    model's cache."""
    asked = FirstOf(drafters)
    info = DraftInfo(
        kind=asked.name,
        path=draft.file.path if draft else spec.model,
        taps=asked.taps,
        longest=asked.longest,
        memory=_memory(asked, draft, planned),
        synthetic=bool(spec.synth_rates),
        fallback=last.name if last else None,
    )
    if draft is None:
        return info
    return info._replace(
        file_bytes=draft.nbytes,
        parameters=draft.tensors.elements,
        context=draft_context(spec, context),
    )


def draft_plan(options: LoadOptions, positions: int) -> CachePlan:
    """A draft's own cache, beside so many positions of the model's."""
    own = draft_context(options.spec or SpecOptions(), positions)
    return CachePlan(own, *CacheTypes.of_draft(options), whole=options.whole_windows)


def draft_context(options: SpecOptions, positions: int) -> int:
    """Positions of a draft's cache, beside so many of the model's."""
    return min(rounded(options.context) or positions, positions)


def _memory(drafter: Drafter, draft: DraftFile | None, planned: Memory) -> Memory:
    """A drafter without a file knows best itself what it takes."""
    return planned if draft else Memory(0, drafter.nbytes, 0)


def kind_of(file: GgufFile) -> tuple[str, FileKind] | None:
    """What a file drafts as, as `--spec-type` spells it; None if it is no draft."""
    kinds = _file_kinds()
    for name in sorted(kinds, key=lambda name: (name == _SIMPLE, name)):
        if kinds[name].claims(file.metadata, file.tensors):
            return _type(name), kinds[name]
    return None


def _identified(file: GgufFile) -> tuple[str, FileKind]:
    if found := kind_of(file):
        return found
    kinds = _file_kinds()
    raise BadModel(
        f"'{file.path}' is no draft: nothing here drafts with architecture "
        f"{file.metadata.architecture!r}",
        hint=f"drafts are {', '.join(map(_type, sorted(kinds)))}; the last takes any model of "
        f"architecture {' or '.join(plugins.names('models'))}",
    )


def _file_kinds() -> dict[str, FileKind]:
    """By module."""
    found = {name: plugins.find("drafters", name) for name in plugins.names("drafters")}
    return {name: kind for name, kind in found.items() if isinstance(kind, FileKind)}


def _type(module: str) -> str:
    """What `--spec-type` calls a drafter from a file."""
    return "draft-simple" if module == _SIMPLE else f"draft-{module}"


def _module(type: str) -> str:
    if type == "draft-simple":
        return _SIMPLE
    return type.removeprefix("draft-").replace("-", "_")


def _type_of(info: Info) -> Any:
    return weight_type(info.type, info.name)
